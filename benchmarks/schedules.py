"""Compare the schedules of every algorithm on the sample graphs.

    python -m benchmarks.schedules [--quick] [--only NAME]... [--families [--sizes 500,2000]]

The columns of the algorithms say how much higher the peak of live memory is, or the sum over all
steps with --total, than that of the schedule which is chosen by default.  With --families, the
graphs are random ones, and Kahn's orders, a plain shift search's and the best ones stand beside:
a line for each graph as soon as it is known, which takes minutes for large ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.families import measure_families
from benchmarks.subjects import branching, tiny_additions, trained
from popc.cli.report import format_table
from popc.compiler import transform_program
from popc.frontend import ModelSource
from popc.ir import Graph
from popc.memory import plan_memory
from popc.request import CompileRequest
from popc.schedule import Schedule, build_schedule, compare_algorithms, measure_liveness
from samples.networks import digits_cnn, digits_mlp, sorting_transformer
from tests.zoo.light import NAMES, light_model

__all__ = ["Subject", "sample_networks"]

_LOSS: Final = {"type": "cross_entropy", "input": "logits", "label": "label"}
_OPTIMIZERS: Final = {
    "sgd": {"type": "sgd", "learning_rate": 0.01, "momentum": 0.9},
    "adam": {"type": "adam", "learning_rate": 1e-3},
}


@dataclass(frozen=True)
class Subject:
    """A model and how it is compiled."""

    name: str
    model: ModelSource
    shapes: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    dims: dict[str, int] = field(default_factory=dict[str, int])
    bind: dict[str, Any] = field(default_factory=dict[str, Any])
    options: dict[str, object] = field(default_factory=dict[str, object])
    optimizer: str = ""

    def graph(self) -> Graph:
        """The graph as the scheduler sees it."""
        request = CompileRequest.of(
            self.model,
            options=self.options,
            shapes=self.shapes,
            dims=self.dims,
            bind=self.bind,
            loss=_LOSS if self.optimizer else None,
            optimizer=_OPTIMIZERS[self.optimizer] if self.optimizer else None,
        )
        return transform_program(request, request.load()).graph


def sample_networks() -> Iterator[Subject]:
    """The networks of the training samples, trained and not."""
    for name, make in (
        ("digits_mlp", digits_mlp),
        ("digits_cnn", digits_cnn),
        ("sorting_transformer", sorting_transformer),
    ):
        model, dims = make(), {"batch": 32}
        yield Subject(name, model, dims=dims)
        for optimizer in _OPTIMIZERS:
            yield Subject(f"{name}, {optimizer}", model, dims=dims, optimizer=optimizer)
    batches: dict[str, object] = {"accumulation_factor": 4, "batches_per_step": 2}
    model = sorting_transformer()
    yield Subject("... in batches", model, dims={"batch": 32}, options=batches, optimizer="adam")
    deep = sorting_transformer(layers=24)
    yield Subject("... 24 layers", deep, dims={"batch": 8}, optimizer="adam")


def _subjects(*, quick: bool) -> Iterator[Subject]:
    yield from sample_networks()
    for subject in trained():
        yield Subject(subject.name, subject.model, subject.shapes, bind=subject.bind)
    for name in NAMES[: 2 if quick else None]:
        yield Subject(name, light_model(name).SerializeToString())
    yield Subject("additions 1000", tiny_additions(1000))
    yield Subject("branching 5000", branching(5000))
    if not quick:
        yield Subject("branching 20000", branching(20_000))


def _row(name: str, graph: Graph, *, total: bool) -> dict[str, str]:
    start = time.perf_counter()
    schedule = build_schedule(graph)
    seconds = time.perf_counter() - start
    best = measure_liveness(graph, schedule.orders)
    plan = plan_memory(graph, schedule)
    row = {"graph": name, "ops": f"{sum(len(part) for part in graph.walk()):,}"}
    for report in compare_algorithms(graph):
        mine, other = (best.total, report.total) if total else (best.peak, report.peak)
        row[report.name] = f"{other / mine:.3f}" if mine else "-"
    return row | {
        "peak": f"{best.peak:,}",
        "proven": _proven(schedule),
        "arena": f"{plan.arena_bytes:,}",
        "ms": f"{1e3 * seconds:.0f}",
    }


def _proven(schedule: Schedule) -> str:
    """The word yes if no schedule has a lower peak, or else the distance to the bound."""
    gaps = [
        report.peak / max(report.lower, 1) for report in schedule.reports if not report.is_proven
    ]
    return f"within {max(gaps) - 1:.1%}" if gaps else "yes"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedules")
    parser.add_argument("--quick", action="store_true", help="leave the largest graphs out")
    parser.add_argument("--total", action="store_true", help="compare sums instead of peaks")
    parser.add_argument("--only", action="append", metavar="NAME", help="may be given again")
    parser.add_argument("--families", action="store_true", help="take random graphs")
    parser.add_argument("--sizes", metavar="N,...", help="of the random graphs")
    arguments = parser.parse_args()
    if arguments.families:
        sizes = arguments.sizes or ("500" if arguments.quick else "500,1000,2000")
        for row in measure_families(arguments.only, [int(size) for size in sizes.split(",")]):
            print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
        return
    rows = [
        _row(subject.name, subject.graph(), total=arguments.total)
        for subject in _subjects(quick=arguments.quick)
        if arguments.only is None or subject.name in arguments.only
    ]
    _print(rows)


def _print(rows: Sequence[Mapping[str, str]]) -> None:
    columns = list(rows[0]) if rows else []
    cells = [[row.get(column, "-") for column in columns] for row in rows]
    print(format_table([columns, *cells], right=tuple(range(1, len(columns)))))


if __name__ == "__main__":
    main()
