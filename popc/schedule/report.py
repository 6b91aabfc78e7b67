"""The comparison that found a schedule, and the quality of the result."""

from __future__ import annotations

from collections.abc import Iterator

from popc.schedule.chosen import Candidate, ChosenOrder
from popc.schedule.footprint import Part
from popc_runtime.ground.frozen import frozen

__all__ = ["PartReport", "format_reports", "report_on"]


@frozen
class PartReport:
    """The way in which the order of one part of a program was found.

    Attributes:
        name: Of the graph; of load time, "load".
        ops: How many there are.
        candidates: The orders that were compared.
        chosen: The name of the best of them.
        peak, total: The most bytes live in a step, and the bytes live in each step added up, in
            the chosen order as improved by local search.
        moves: Moves that local search has made.
        lower: No order has a lower peak than this.
    """

    name: str
    ops: int
    candidates: tuple[Candidate, ...]
    chosen: str
    peak: int
    total: int
    moves: int
    lower: int

    @property
    def is_proven(self) -> bool:
        """True if no order has a lower peak, given the orders of nested graphs."""
        return self.peak <= self.lower


def report_on(part: Part, choice: ChosenOrder) -> PartReport:
    """The report of a choice."""
    return PartReport(
        "load" if part.at_load else part.graph.name,
        len(part.ops),
        choice.candidates,
        choice.chosen,
        choice.cost.peak,
        choice.cost.total,
        choice.moves,
        choice.lower,
    )


def format_reports(reports: tuple[PartReport, ...]) -> Iterator[str]:
    """One line per part and one per candidate."""
    for report in reports:
        best = "proven" if report.is_proven else f"at least {report.lower}"
        yield f"live in {report.name}: peak {report.peak} ({best}), sum {report.total}"
        for name, cost in report.candidates:
            chosen = f", chosen, {report.moves} moves" if name == report.chosen else ""
            yield f"  {name}: peak {cost.peak}, sum {cost.total}{chosen}"
