"""Pooling: the vertex of popnn that reduces windows, and of its gradient."""

from __future__ import annotations

from popc.cost.formulas.numbers import WORKERS, Count, ceil_div
from popc_runtime.ground.frozen import frozen

__all__ = ["PoolWork", "pooling", "regroup_cycles"]


@frozen
class PoolWork:
    """The work of a tile: sizes of its part, numbers or arrays of them.

    Attributes:
        rows, columns: Of the results, over all of the batch.
        groups, vectors: Groups of channels, and vectors of 64 bits in a group.
        positions: Of a window that reach a row, each of which is gone through on its own.
        stride: Of the columns, those that a position of the window reaches one after another.
    """

    rows: Count
    columns: Count
    groups: Count
    vectors: Count
    positions: int
    stride: int


def pooling(work: PoolWork, *, maximum: bool, backward: bool) -> Count:
    """MaxPooling, SumPooling or MaxPoolingGrad: popnn's getPoolingCycles.

    Workers take as many results each, row by row (partitionPartialByContext).
    """
    elements = work.rows * work.columns
    mine = ceil_div(elements, WORKERS)
    rows = ceil_div(mine, work.columns)
    width = ceil_div(ceil_div(mine, rows), work.stride)
    first, more = (7, 5) if backward else (4 if maximum else 5, 3)
    vector = 2 + first + more * (width - 1) + 1
    group = 1 + work.vectors * vector + 1
    between = (6 if backward else 4) * (work.groups - 1)
    row = 13 + work.positions * (20 + work.groups * group + between + 3) + 2
    zeros = work.groups * (4 + ceil_div(elements * work.vectors, WORKERS))
    begin = 17 + 2 + zeros + 6 + 2 + 2 + (1 if maximum else 2) + (10 if backward else 0) + 10
    return 7 + WORKERS * (begin + rows * row + 1) + 6


def regroup_cycles(bytes_: Count) -> Count:
    """Giving data of a tile groups of other channels: a word a cycle, popnn's planner expects."""
    return bytes_ // 4
