"""Plans for embeddings: a table whose rows are taken or added to by index.

Popops plans multiSlice and multiUpdateAdd together, by the same splits.
"""

from __future__ import annotations

from collections.abc import Iterator

from popc.cost.formulas.elementwise import Lanes, fill
from popc.cost.formulas.movement import exchange_cycles, multi_slice, multi_update
from popc.cost.formulas.numbers import WORKERS, ceil_div
from popc.cost.formulas.reduce import strided
from popc.cost.planner.candidates import split_counts
from popc.target import Target
from popc_runtime.ground.frozen import frozen

__all__ = ["GatherPlan", "GatherProblem", "plan_gather", "plan_scatter"]


@frozen
class GatherProblem:
    """``lookups`` rows of ``length`` elements out of ``table`` rows, or added to them."""

    lookups: int
    length: int
    table: int
    element_bytes: int


@frozen
class GatherPlan:
    """The split of table and lookups over tiles, and its costs.

    Attributes:
        columns, rows: Parts of the table.
        lookups: Parts of the indices; each needs the table.
        exchange, compute: Cycles, of the first stage and of the second.  That collects what the
            parts of the table have found; or it adds up the sums of the parts of the indices.
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
    plans = [_gather(problem, target, *parts) for parts in _splits(problem, target)]
    return _best(plans, bound)


def plan_scatter(problem: GatherProblem, lanes: Lanes, target: Target, bound: float) -> GatherPlan:
    """The same for adding rows to those of a table, whose elements are of the kind ``lanes``."""
    plans = [_scatter(problem, lanes, target, *parts) for parts in _splits(problem, target)]
    return _best(plans, bound)


def _splits(problem: GatherProblem, target: Target) -> Iterator[tuple[int, int, int]]:
    """Parts of the columns and the rows of the table, and of the indices."""
    tiles = target.compute_tiles
    grain = max(8 // problem.element_bytes, 1)
    for columns in split_counts(ceil_div(problem.length, grain), tiles, 12):
        for rows in split_counts(max(problem.table // 2, 1), tiles // columns, 12):
            for lookups in split_counts(problem.lookups, tiles // (columns * rows), 12):
                yield columns, rows, lookups


def _best(plans: list[GatherPlan], bound: float) -> GatherPlan:
    fitting = [plan for plan in plans if plan.temporary_bytes <= bound]
    if fitting:
        return min(fitting, key=lambda plan: (plan.cycles, plan.temporary_bytes))
    return min(plans, key=lambda plan: (plan.temporary_bytes, plan.cycles))


def _gather(
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


def _scatter(
    problem: GatherProblem, lanes: Lanes, target: Target, columns: int, rows: int, lookups: int
) -> GatherPlan:
    """Each tile gets its columns of its part of the updates, whichever rows they belong to.

    Rows of the table are dealt to workers, each of which looks at all updates.
    """
    size, speed = problem.element_bytes, target.exchange.bytes_per_cycle
    width, height = ceil_div(problem.length, columns), ceil_div(problem.table, rows)
    share = ceil_div(problem.lookups, lookups)
    received = share * (4 + width * size)
    in_range = ceil_div(share * ceil_div(height, WORKERS), max(problem.table, 1))
    first = multi_update(in_range, share - in_range, width, float_type=lanes != "half")
    if lookups == 1:
        exchange = exchange_cycles(received, speed), 0
        return GatherPlan(columns, rows, lookups, exchange, (first, 0), received)
    sums = width * height  # of each part of the updates, which are added up in the end
    mine = ceil_div(sums, lookups)
    exchange = exchange_cycles(received, speed), exchange_cycles(mine * lookups * size, speed)
    worker = strided(ceil_div(mine, WORKERS), lookups, lanes, result=lanes)
    compute = first + fill(sums * size), WORKERS * worker
    temporary = sums * size + max(received, mine * lookups * size)
    return GatherPlan(columns, rows, lookups, exchange, compute, temporary)
