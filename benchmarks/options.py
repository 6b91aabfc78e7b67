"""Effects of every option about schedules and memory, on sample networks.

    python -m benchmarks.options [--only TEXT] [--json FILE]

Each program is compared with the same one without the option: results of three runs, and weights
after them; peak live bytes, bytes in streaming memory and of the busiest tile, cycles on the
target, ops, instructions.
What an option is for, and what it costs, is in its row: numbers that move elsewhere are told.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

import popc_runtime
from benchmarks.option_rows import ROWS, Row
from popc.archive import Content, build_archive
from popc.cli.report import format_table
from popc.compiler import compile_program
from popc.request import CompileRequest
from popc.study.measures import Measures, measure
from popc_runtime.errors import PopcError
from popc_runtime.format import Array
from samples.networks import digits_cnn, digits_mlp, sorting_transformer

__all__ = ["LARGE", "NETWORKS", "find_astray", "main", "measure_row"]

NETWORKS: Final[Mapping[str, Callable[[], onnx.ModelProto]]] = {
    "mlp": digits_mlp,
    "cnn": digits_cnn,
    "transformer": sorting_transformer,
}
# Networks of which only some options are tried: what they save shows in nothing smaller.
LARGE: Final[Mapping[str, Callable[[], onnx.ModelProto]]] = {
    "encoder": partial(sorting_transformer, length=64, size=256, heads=4, layers=4),
}
_RUNS: Final = 3
_SMALL: Final = 1e-3
_LOSS: Final = {"type": "cross_entropy", "input": "logits", "label": "label"}
_ADAM: Final = {"type": "adam", "learning_rate": 1e-3}
# Adam divides gradients by their size, and so makes a lot of rounding errors of those that are 0.
_MOMENTUM: Final = {"type": "sgd", "learning_rate": 0.01, "momentum": 0.9}
_SHOWN: Final = (
    *("peak liveness", "on-chip bytes", "remote bytes", "busiest tile"),
    *("cycles", "ops", "instructions"),
)


@dataclass(frozen=True, slots=True)
class _Program:
    """A compiled program: its numbers, and what runs of it give, by name."""

    measures: Measures
    results: Mapping[str, Array]


def main() -> None:
    """Print the table; exit with 1 if results, or what options move, are not as rows say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.options")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose names contain TEXT")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    arguments = parser.parse_args()
    cache: dict[str, _Program] = {}
    chosen = [row for row in ROWS if arguments.only in row.name]
    figures = [
        measure_row(row, network, cache) for row in chosen for network in row.graphs or NETWORKS
    ]
    header = ["option", "network", "results", *_SHOWN]
    print(format_table([header, *(_cells(row) for row in figures)], right=range(3, len(header))))
    wrong = sum(row["wrong"] for row in figures)
    changed = sum(any(a != b for a, b in row["numbers"].values()) for row in figures)
    print(
        f"\n{len(figures)} programs: {sum(row['difference'] == 0 for row in figures)} with the same"
        f" results bit for bit, {wrong} with wrong ones; {changed} are other programs than without"
        f" the option; {sum(bool(row['astray']) for row in figures)} move a number the other way"
        " than the option is for"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if wrong or any(row["astray"] for row in figures):
        raise SystemExit(1)


def measure_row(row: Row, network: str, cache: dict[str, _Program]) -> dict[str, Any]:
    """The figures of one row for one network; ``cache`` keeps the programs without the option."""
    optimizer = _MOMENTUM if row.tolerance else _ADAM
    training = {"loss": _LOSS, "optimizer": optimizer} if row.trains else None
    key = f"{network} {row.batch} {training} {sorted(row.base.items())}"
    if key not in cache:
        cache[key] = _compiled(network, row.batch, row.base, training)
    plain = cache[key]
    try:
        program = _compiled(network, row.batch, {**row.base, **row.options}, training)
    except PopcError as error:
        raise SystemExit(f"{row.name}, {network}: {error}\n{error.details}") from error
    difference = _difference(plain.results, program.results)
    before, after = plain.measures.numbers, program.measures.numbers
    numbers = {name: (before[name], after[name]) for name in _SHOWN}
    return {
        "option": row.name,
        "network": f"{network}, {'training' if row.trains else 'inference'}",
        "difference": difference,
        "reason": row.reason,
        "wrong": not difference <= row.tolerance,
        "numbers": numbers,
        "astray": find_astray(row, numbers),
    }


def find_astray(row: Row, numbers: Mapping[str, tuple[int, int]]) -> list[str]:
    """The numbers that do not go where the option is said to move them."""
    return [
        name
        for name, sign in row.moves.items()
        if (numbers[name][1] - numbers[name][0]) * sign <= 0
    ]


def _cells(figures: Mapping[str, Any]) -> list[str]:
    difference = figures["difference"]
    results = "equal" if difference == 0 else f"{difference:.0e}"
    if figures["wrong"]:
        results += " WRONG"
    if figures["astray"]:
        results += f" ASTRAY: {', '.join(figures['astray'])}"
    cells = [figures["option"], figures["network"], results]
    for before, after in figures["numbers"].values():
        cells.append(f"{after:,}" if before == after else f"{before:,} > {after:,}")
    return cells


def _compiled(
    network: str, batch: int, settings: Mapping[str, Any], train: Mapping[str, Any] | None
) -> _Program:
    options = {"cost_report": False, **settings}
    request = CompileRequest.of(
        {**NETWORKS, **LARGE}[network](), options=options, dims={"batch": batch}, train=train
    )
    compiled = compile_program(request, request.load())
    archive, measures = build_archive([Content(compiled)]), measure(compiled)
    with tempfile.TemporaryDirectory() as folder:
        executable = popc_runtime.load(archive.save(Path(folder) / "program.popx"))
    return _Program(measures, _results(executable))


def _results(executable: popc_runtime.Executable) -> dict[str, Array]:
    """Outputs of some runs, and the variables afterwards."""
    found: dict[str, Array] = {}
    random = np.random.default_rng(0)
    for run in range(_RUNS):
        feeds = {
            spec.name: random.integers(0, 10, spec.shape).astype(spec.dtype.storage)
            if not spec.dtype.is_float
            else random.random(spec.shape, np.float32)
            for spec in executable.inputs
        }
        for name, value in executable.run(feeds).items():
            found[f"{run} {name}"] = np.array(value)
    found.update(executable.state.read())
    return found


def _difference(plain: Mapping[str, Array], other: Mapping[str, Array]) -> float:
    """The largest difference, relative to the largest value of its array; infinite for NaN.

    Arrays whose values are a thousand times smaller than 1 hold gradients that ought to be zero,
    such as that of a bias before a normalisation; they are compared with a thousandth.
    """
    worst = 0.0
    for name in plain.keys() & other.keys():
        left, right = plain[name].astype(np.float64), other[name].astype(np.float64)
        if np.array_equal(left, right):
            continue
        scale = max(float(np.abs(left).max()), _SMALL)
        gap = float(np.abs(left - right).max()) / scale
        worst = max(worst, gap if np.isfinite(gap) else np.inf)
    return worst


if __name__ == "__main__":
    main()
