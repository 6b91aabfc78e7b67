"""See that an installed popc-runtime has native kernels, and runs archives of every format.

It needs the package and numpy only, so that it tries a wheel where that was just installed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import numpy as np

import popc_runtime
from popc_runtime.native import find_library, why_missing

_ARCHIVES: Final = Path(__file__).resolve().parent.parent / "tests" / "golden" / "archives"
_PROGRAMS: Final = ("control", "image", "sequence", "types")


def main() -> int:
    """Run them; 1 if there are no kernels, or a result is wrong."""
    if find_library() is None:
        print(f"no native kernels: {why_missing()}", file=sys.stderr)
        return 1
    paths = [path for path in sorted(_ARCHIVES.glob("*/*.popx")) if path.stem in _PROGRAMS]
    wrong = [path for path in paths if not _agrees(path)]
    print("\n".join(f"wrong: {path}" for path in wrong) or f"{len(paths)} archives compute")
    return 1 if wrong or not paths else 0


def _agrees(path: Path) -> bool:
    with np.load(_ARCHIVES / f"{path.stem}.npz") as file:
        kept = dict(file)
    inputs = {name.removeprefix("in "): kept[name] for name in kept if name.startswith("in ")}
    results = popc_runtime.load(path, engine="native").run(inputs)
    return all(
        np.allclose(result, kept[f"out {name}"], rtol=1e-3, atol=1e-3)
        for name, result in results.items()
    )


if __name__ == "__main__":
    sys.exit(main())
