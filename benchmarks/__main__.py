"""Measure popc beside onnxruntime and print tables.

    python -m benchmarks [--quick] [--only SECTION]... [--json FILE]

Figures of one run belong together: the engines take turns.  Single ops: `python -m
benchmarks.kernels`, and recurrent layers: `python -m benchmarks.recurrent`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks.compilers import measure_compilers
from benchmarks.processes import (
    measure_compilation,
    measure_curve,
    measure_loading,
    measure_startup,
)
from benchmarks.speed import measure_overhead, measure_speed, measure_threads
from benchmarks.training import measure_training
from popc.cli.report import format_table
from popc_runtime import native

_SECTIONS: Final[Mapping[str, tuple[str, Callable[..., list[dict[str, Any]]]]]] = {
    "speed": ("time of one run, medians; onnxruntime with 2 threads", measure_speed),
    "training": ("time of one training step; PyTorch eager with 2 threads", measure_training),
    "threads": ("what a second thread gains, medians", measure_threads),
    "loading": ("from a file to the first result, in fresh processes", measure_loading),
    "startup": ("a process: import, load, first result", measure_startup),
    "overhead": ("many additions of eight numbers, beside numpy calls in a loop", measure_overhead),
    "compile": ("compile time, peak memory, archive size", measure_compilation),
    "compilers": (
        "processes that compile, beside IREE; and that load elsewhere",
        measure_compilers,
    ),
    "curve": ("compile time of synthetic graphs", measure_curve),
}


def main() -> None:
    """Run the sections that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and models")
    parser.add_argument(
        "--only",
        action="append",
        choices=list(_SECTIONS),
        metavar="SECTION",
        help=f"one of {', '.join(_SECTIONS)}; may be given again",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"machine": _machine()}
    print(", ".join(f"{key} {value}" for key, value in figures["machine"].items()))
    for name in arguments.only or _SECTIONS:
        title, measure = _SECTIONS[name]
        print(f"\n{name}: {title}", flush=True)
        figures[name] = measure(quick=arguments.quick)
        print(_table(figures[name]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def _machine() -> dict[str, Any]:
    packages = {name: version(name) for name in ("numpy", "onnxruntime")}
    kernels = Path(native.__file__).with_name("_native.abi3.so")
    library = native.find_library()
    size = f"{kernels.stat().st_size / 1e6:.2f} MB" if kernels.exists() else "none"
    taken = f"{size}, those for {library.variant}" if library else f"{size}, numpy is taken"
    facts = {"cores": os.cpu_count(), "python": platform.python_version(), **packages}
    return {**facts, "native kernels": taken}


def _table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "nothing to measure"
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_cell(row.get(column, "")) for column in columns] for row in rows]
    return format_table([columns, *cells], right=tuple(range(1, len(columns))))


def _cell(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
