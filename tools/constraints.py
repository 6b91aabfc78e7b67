"""The versions of everything that the images install, for docker/constraints.txt.

    python -m tools.constraints > docker/constraints.txt

pip says what it would install for popc with all extras; popc's own packages are left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

__all__ = ["main"]

_ROOT: Final = Path(__file__).resolve().parent.parent
_HEADING: Final = "# Made by python -m tools.constraints: what the images install.\n"


def main() -> int:
    """Print the constraints."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    needed = sorted({*_needed("pyproject.toml"), *_needed("runtime/pyproject.toml")})
    report = subprocess.check_output([*command, "--report", "-", *needed], text=True)
    found = [item["metadata"] for item in json.loads(report)["install"]]
    lines = sorted(f"{item['name'].lower()}=={item['version']}" for item in found)
    print(_HEADING + "\n".join(lines))
    return 0


def _needed(project: str) -> list[str]:
    """The requirements of a distribution, with all extras, but for popc's own."""
    read: dict[str, Any] = tomllib.loads((_ROOT / project).read_text(encoding="utf-8"))["project"]
    extras = [each for extra in read["optional-dependencies"].values() for each in extra]
    return [each for each in (*read["dependencies"], *extras) if not each.startswith("popc")]


if __name__ == "__main__":
    sys.exit(main())
