"""Execution reports: the cost of a run on the target, by what has run.

The compiler says what every step of a program costs (`popc.cost.execution`); the engine counts
iterations of loops and branches taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from popc_runtime.errors import CorruptArchiveError
from popc_runtime.ground.frozen import frozen

__all__ = ["KINDS", "CycleProfile", "ExecutionReport", "OpExecution"]

KINDS: Final = ("compute", "exchange", "sync", "launch", "host")
_TITLES: Final = {
    "compute": "compute",
    "launch": "vertex launch",
    "exchange": "exchange",
    "sync": "sync",
    "host": "host exchange",
}
_MOST_ROWS: Final = 12  # ops that are printed


@frozen
class OpExecution:
    """One op of the program.

    Attributes:
        name: Of its first result, or of what it writes.
        op_type: What it does.
        origin: The ONNX node that it comes from.
        ipu: The chip that it runs on.
        times: How often it has run.
        cycles: Of all runs together, by the words in `KINDS`.
        hidden: Cycles of transfers that have passed while others computed.
        inner: Whether it stands in the innermost main loop.
    """

    name: str
    op_type: str
    origin: str
    ipu: int
    times: int
    cycles: tuple[int, ...]
    hidden: int = 0
    inner: bool = False

    @property
    def total(self) -> int:
        """Cycles of all kinds."""
        return sum(self.cycles)


@frozen
class ExecutionReport:
    """The cost of one run, or of all runs so far, on the target, step by step.

    Attributes:
        target: The name of the target.
        clock_hz: Of its clock.
        runs: How many runs it is about.
        ops: The ops, in the order of the program.
        assumed: Whether loops and branches were not counted but assumed, as for an estimate.
        beside: Cycles of ``ops`` that pass while a slower chip of a pipeline works, by kind.
    """

    target: str
    clock_hz: int
    runs: int
    ops: tuple[OpExecution, ...]
    assumed: bool = False
    beside: tuple[int, ...] = (0,) * len(KINDS)

    @property
    def cycles(self) -> int:
        """All cycles; where chips work at the same time, those of the slowest."""
        return sum(op.total for op in self.ops) - sum(self.beside)

    @property
    def seconds(self) -> float:
        """The time that they take."""
        return self.cycles / self.clock_hz

    @property
    def hidden(self) -> int:
        """Cycles of transfers that have passed while others computed."""
        return sum(op.hidden for op in self.ops)

    def joined(self, others: Sequence[ExecutionReport]) -> ExecutionReport:
        """The report on these runs and on those of other programs of the same archive."""
        reports = (self, *others)
        return ExecutionReport(
            self.target,
            self.clock_hz,
            sum(report.runs for report in reports),
            tuple(op for report in reports for op in report.ops),
            any(report.assumed for report in reports),
            tuple(map(sum, zip(*(report.beside for report in reports), strict=True))),
        )

    def by_kind(self) -> dict[str, int]:
        """Cycles by what they were spent on."""
        columns = zip(*(op.cycles for op in self.ops), strict=True)
        totals = [sum(column) for column in columns] or [0] * len(KINDS)
        rows = zip(KINDS, totals, self.beside, strict=True)
        return {kind: total - beside for kind, total, beside in rows}

    def by_type(self) -> dict[str, int]:
        """Cycles by type of op, most first."""
        totals: dict[str, int] = {}
        for op in self.ops:
            totals[op.op_type] = totals.get(op.op_type, 0) + op.total
        return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))

    def inner_cycles(self, ipu: int) -> int:
        """Cycles of one chip in the innermost main loop; of the whole program, if it has none."""
        inside = [op for op in self.ops if op.inner] or self.ops
        return sum(op.total for op in inside if op.ipu == ipu)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "schema": "popc.execution/1",
            "target": self.target,
            "clock_hz": self.clock_hz,
            "runs": self.runs,
            "assumed": self.assumed,
            "cycles": {"total": self.cycles, **self.by_kind()},
            "hidden_cycles": self.hidden,
            "beside_cycles": sum(self.beside),
            "seconds": self.seconds,
            "by_type": self.by_type(),
            "steps": [
                {
                    "name": op.name,
                    "op_type": op.op_type,
                    "origin": op.origin,
                    "ipu": op.ipu,
                    "times": op.times,
                    "cycles": {"total": op.total, **dict(zip(KINDS, op.cycles, strict=True))},
                    "hidden_cycles": op.hidden,
                }
                for op in self.ops
            ],
        }

    def __str__(self) -> str:
        """The summary, types of ops, and the ops that took longest."""
        return "\n\n".join(
            [self._summary(), _table(self._kinds()), _table(self._types()), _table(self._steps())]
        )

    def _summary(self) -> str:
        runs = "1 run" if self.runs == 1 else f"{self.runs:,} runs"
        text = f"Execution report: {runs} on {self.target}, {self.seconds * 1e3:,.3f} ms"
        if self.assumed:
            text += "\nLoops and branches were not counted: figures are those of the estimate"
        return text

    def _kinds(self) -> Iterator[tuple[str, ...]]:
        kinds = self.by_kind()
        yield "Total cycles", f"{self.cycles:,}", ""
        for kind, title in _TITLES.items():
            yield f"  {title}", f"{kinds[kind]:,}", _share(kinds[kind], self.cycles)
        if self.hidden:
            yield "Hidden host exchange", f"{self.hidden:,}", ""
        if any(self.beside):
            yield "Beside slower chips", f"{sum(self.beside):,}", ""

    def _types(self) -> Iterator[tuple[str, ...]]:
        yield "Cycles by op type", "", ""
        for name, total in self.by_type().items():
            if total:
                yield f"  {name}", f"{total:,}", _share(total, self.cycles)

    def _steps(self) -> Iterator[tuple[str, ...]]:
        ranked = sorted(self.ops, key=lambda op: (-op.total, op.name))
        yield "Program steps", "cycles", "", "times", "op"
        for op in ranked[:_MOST_ROWS]:
            share = _share(op.total, self.cycles)
            yield f"  {op.name}", f"{op.total:,}", share, f"{op.times:,}", op.op_type
        if len(ranked) > _MOST_ROWS:
            yield f"  ... {len(ranked) - _MOST_ROWS:,} more", "", "", "", ""


class CycleProfile:
    """The compiler's figures for the cost of a program.

    Attributes:
        instrumentations: What may be asked for: "outer", "inner".

    Raises (constructor):
        CorruptArchiveError: the document is not as the compiler writes it.
    """

    def __init__(self, document: bytes) -> None:
        try:
            data = json.loads(document)
            self._target, self._clock = str(data["target"]), int(data["clock_hz"])
            self.instrumentations = tuple(str(name) for name in data["instrumentations"])
            self._program: list[Mapping[str, Any]] = data["program"]
            self._beside = tuple(int(cycles) for cycles in data["beside"])
            self._blocks = sum(1 for step in _all_steps(self._program) if "block" in step)
            self.report([], 0)  # finds out whether everything is there
        except (
            *(LookupError, TypeError, ValueError, AttributeError),
            *(ArithmeticError, RecursionError),
        ) as error:
            raise CorruptArchiveError(
                f"the archive is damaged: cannot read the costs of its program: {error!r:.200}",
                hint="copy it again, or compile the model again",
            ) from error

    def report(self, counts: Sequence[tuple[int, int]], runs: int) -> ExecutionReport:
        """The report of ``runs`` runs in which blocks have run as often as ``counts`` says."""
        known = counts if len(counts) == self._blocks else None
        ops = tuple(_executed(self._program, runs, known, inner=False))
        assumed = known is None and self._blocks > 0
        beside = tuple(cycles * runs for cycles in self._beside)
        report = ExecutionReport(self._target, self._clock, runs, ops, assumed, beside)
        report.by_kind()  # finds out whether the kinds are those that we know
        return report


def _all_steps(steps: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for step in steps:
        yield step
        for body in step.get("bodies", ()):
            yield from _all_steps(body)


def _executed(
    steps: Iterable[Mapping[str, Any]],
    times: int,
    counts: Sequence[tuple[int, int]] | None,
    *,
    inner: bool,
) -> Iterator[OpExecution]:
    """The ops of a list of steps that has run ``times`` times."""
    for step in steps:
        repeats = _repeats(step, times, counts)
        own = repeats[0] if step["type"] == "Loop" else times
        cycles = tuple(int(count) * own for count in step["cycles"])
        if len(cycles) != len(KINDS):
            raise ValueError(f"{len(cycles)} kinds of cycles")
        yield OpExecution(
            str(step["name"]),
            str(step["type"]),
            str(step["origin"]),
            int(step["ipu"]),
            own,
            cycles,
            int(step.get("hidden", 0)) * own,
            inner,
        )
        bodies = [
            list(_executed(body, count, counts, inner=inner or bool(step.get("innermost"))))
            for body, count in zip(step.get("bodies", ()), repeats, strict=False)
        ]
        if counts is None and step["type"] == "If" and "taken" not in step:
            bodies = sorted(bodies, key=lambda ops: sum(op.total for op in ops))[-1:]
        for body in bodies:
            yield from body


def _repeats(
    step: Mapping[str, Any], times: int, counts: Sequence[tuple[int, int]] | None
) -> tuple[int, int]:
    """The number of times that the bodies of a step have run, or are thought to."""
    if "block" in step and counts is not None:
        return counts[int(step["block"])]
    if step["type"] == "Loop":
        trips = int(step["trips"])
        return times * trips if trips >= 0 else times, 0
    if "taken" in step:
        then, all_ = (int(count) for count in step["taken"])
        return times * then // all_, times - times * then // all_
    return times, times


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ""


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    """Columns side by side, numbers to the right."""
    lines = list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if cell[:1].isdigit() else cell.ljust(width)
            for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    )
