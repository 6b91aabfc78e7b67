"""Measure the time of a process to its first result: from the cache, and from an archive by path.

    python -m benchmarks.caching [MODEL.onnx]... [--runs N]

The processes take turns; medians of the time that passes, and of the processor's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

import popc
from benchmarks.subjects import Subject, trained
from popc.cli.report import format_seconds, format_table

_PATH = "import sys, popc_runtime; popc_runtime.load(sys.argv[1]).warmup()"
_CACHE = "import sys, popc; popc.load(sys.argv[1], shapes={shapes!r}, bind={bind!r}).warmup()"
_VERSIONS = ("path", "cache")


def main() -> None:
    """Measure each model and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.caching")
    parser.add_argument("models", nargs="*", type=Path, help="default: those of `make bench`")
    parser.add_argument("--runs", type=int, default=15, help="processes of each kind; default: 15")
    arguments = parser.parse_args()
    rows = [["model", "by path", "from the cache", "ratio", "ratio of processor time"]]
    given = (Subject(path.stem, path, {}) for path in arguments.models)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["POPC_CACHE"] = str(Path(folder, "cache"))
        rows += [
            [subject.name, *_measured(subject, Path(folder), arguments.runs)]
            for subject in (given if arguments.models else trained())
        ]
    print(format_table(rows, right=(1, 2, 3, 4)))


def _measured(subject: Subject, folder: Path, runs: int) -> list[str]:
    bind = {name: np.asarray(value).tolist() for name, value in subject.bind.items()}
    shapes = subject.shapes
    archive = popc.compile(subject.model, cache=True, shapes=shapes, bind=bind)
    path = archive.save(folder / f"{subject.name}.popx")
    load = _CACHE.format(shapes=shapes, bind=bind)
    commands = {
        "path": [sys.executable, "-c", _PATH, str(path)],
        "cache": [sys.executable, "-c", load, str(subject.model)],
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in _VERSIONS}
    for _ in range(runs + 1):
        for name in _VERSIONS:
            times[name].append(_timed(commands[name]))
    wall, processor = (
        {name: median(timing[part] for timing in times[name][1:]) for name in _VERSIONS}
        for part in (0, 1)
    )
    return [
        *(format_seconds(wall[name]) for name in _VERSIONS),
        *(f"{part['cache'] / part['path']:.2f}" for part in (wall, processor)),
    ]


def _timed(command: Sequence[str]) -> tuple[float, float]:
    """Seconds that pass, and those of the processor, until a process has ended."""
    before, start = os.times(), time.perf_counter()
    subprocess.run(command, check=True)
    passed, after = time.perf_counter() - start, os.times()
    children = (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )
    return passed, children


if __name__ == "__main__":
    main()
