"""Plans for embeddings: a table whose rows are taken by index (popops' multiSlice plan)."""

from __future__ import annotations

from dataclasses import dataclass

from popc.cost.formulas.movement import exchange_cycles, multi_slice
from popc.cost.formulas.numbers import WORKERS, ceil_div
from popc.cost.planner.candidates import split_counts
from popc.target import Target

__all__ = ["GatherPlan", "GatherProblem", "plan_gather"]


@dataclass(frozen=True, slots=True)
class GatherProblem:
    """``lookups`` rows of ``length`` elements out of ``table`` rows."""

    lookups: int
    length: int
    table: int
    element_bytes: int


@dataclass(frozen=True, slots=True)
class GatherPlan:
    """The split of table and lookups over tiles, and its costs.

    Attributes:
        columns, rows: Parts of the table.
        lookups: Parts of the indices; each needs the table.
        exchange, compute: Cycles, of the first stage and of the second, which collects what the
            parts of the table have found.
    """

    columns: int
    rows: int
    lookups: int
    exchange: tuple[int, int]
    compute: tuple[int, int]
    temporary_bytes: int

    @property
    def cycles(self) -> int:
        """The cycles of both stages."""
        return sum(self.exchange) + sum(self.compute)


def plan_gather(problem: GatherProblem, target: Target, bound: float) -> GatherPlan:
    """The fastest plan with temporary data within ``bound`` bytes of a tile, or the smallest."""
    tiles = target.compute_tiles
    grain = max(8 // problem.element_bytes, 1)
    plans: list[GatherPlan] = []
    for columns in split_counts(ceil_div(problem.length, grain), tiles, 12):
        for rows in split_counts(max(problem.table // 2, 1), tiles // columns, 12):
            parts = split_counts(problem.lookups, tiles // (columns * rows), 12)
            plans += [_plan(problem, target, columns, rows, lookups) for lookups in parts]
    fitting = [plan for plan in plans if plan.temporary_bytes <= bound]
    if fitting:
        return min(fitting, key=lambda plan: (plan.cycles, plan.temporary_bytes))
    return min(plans, key=lambda plan: (plan.temporary_bytes, plan.cycles))


def _plan(
    problem: GatherProblem, target: Target, columns: int, rows: int, lookups: int
) -> GatherPlan:
    size, speed = problem.element_bytes, target.exchange.bytes_per_cycle
    width, height = ceil_div(problem.length, columns), ceil_div(problem.table, rows)
    share = ceil_div(problem.lookups, lookups)
    part = width * height * size
    received = 4 * share + (part - part // lookups)  # indices, and the table if others need it too
    offsets = ceil_div(share, WORKERS)
    in_range = ceil_div(offsets, rows)
    first = multi_slice(in_range, offsets - in_range, width, element_bytes=size)
    found = share * width * size
    temporary = received + found
    if rows == 1:
        return GatherPlan(
            columns, rows, lookups, (exchange_cycles(received, speed), 0), (first, 0), temporary
        )
    mine = ceil_div(share, rows)  # lookups whose candidates this tile chooses from
    candidates = mine * rows * width * size
    second = multi_slice(ceil_div(mine, WORKERS), 0, width, element_bytes=size)
    return GatherPlan(
        columns,
        rows,
        lookups,
        (exchange_cycles(received, speed), exchange_cycles(candidates, speed)),
        (first, second),
        temporary + candidates,
    )
