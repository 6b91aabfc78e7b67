"""SHA-256 of the archives of many programs, to see that a change leaves what is computed alone.

    python -m tools.digests > before.txt
    python -m tools.digests --compare before.txt

The programs: every row of `benchmarks.options` on its sample networks, the classic networks of the
onnx package, inference and training, and the trained models that have been fetched.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import popc
from benchmarks.option_rows import ROWS
from benchmarks.options import LARGE, NETWORKS
from popc_runtime.errors import PopcError
from samples.fetch_models import CACHE, catalogue
from samples.networks import photo_cnn
from tests.zoo.light import NAMES, light_model

_TRAIN: Final[Mapping[str, Any]] = {
    "loss": {"type": "cross_entropy", "input": "logits", "label": "label"},
    "optimizer": {"type": "adam", "learning_rate": {"value": 1e-3, "const": False}},
}
_COSTED: Final = {"cost_report": True, "instrument_with_hardware_cycle_counter": True}


def main() -> int:
    """Print the digests; with ``--compare``, only those that differ, and exit with 1 for any."""
    parser = argparse.ArgumentParser(prog="python -m tools.digests")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="an earlier output")
    parser.add_argument("--only", default="", metavar="TEXT", help="programs whose names have TEXT")
    arguments = parser.parse_args()
    chosen = ((name, work) for name, work in programs() if arguments.only in name)
    if arguments.compare is None:
        for name, keywords in chosen:
            sys.stdout.write(f"{digest(keywords)}  {name}\n")
            sys.stdout.flush()
        return 0
    known = dict(
        reversed(line.split("  ", 1)) for line in arguments.compare.read_text().split("\n") if line
    )
    names = [name for name, keywords in chosen if digest(keywords) != known.get(name)]
    for name in names:
        sys.stdout.write(f"differs  {name}\n")
    sys.stdout.write(f"{len(names)} archives differ\n")
    return bool(names)


def programs() -> Iterator[tuple[str, dict[str, Any]]]:
    """All programs: a name, and the arguments of `popc.compile`."""
    for name, make in NETWORKS.items():
        for kind, train in (("inference", None), ("training", _TRAIN)):
            yield (
                f"{name}, {kind}, with costs",
                {"model": make(), "dims": {"batch": 8}, "train": train, "options": _COSTED},
            )
    for row in ROWS:
        train = _TRAIN if row.trains else None
        for name in row.graphs or NETWORKS:
            yield (
                f"{row.name}, {name}",
                {
                    "model": {**NETWORKS, **LARGE}[name](),
                    "dims": {"batch": 8},
                    "train": train,
                    "options": {**row.base, **row.options},
                },
            )
    yield "photo_cnn", {"model": photo_cnn(), "dims": {"batch": 2}}
    for name in NAMES:
        yield name, {"model": light_model(name), "options": {"weights": "mmap"}}
    for name, entry in catalogue().items():
        path = CACHE / f"{name}.onnx"
        if path.exists():
            keywords = {"shapes": entry["shapes"], "bind": entry.get("bind")}
            yield name, {"model": path, **keywords}


def digest(keywords: Mapping[str, Any]) -> str:
    """The digest of the archive of a program; the message of the error if it is refused."""
    try:
        archive = popc.compile(**keywords)
    except PopcError as error:
        return f"refused: {sha256(str(error).encode()).hexdigest()[:32]}"
    with tempfile.TemporaryDirectory() as folder:
        path = archive.save(Path(folder) / "program.popx")
        return sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
