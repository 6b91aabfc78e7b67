"""Shares of a field that the workers of a tile have (poplin's partitionConvPartialByWorker).

Elements are dealt in a row: worker i of six has those from i * n / 6 on, n being their number.  A
worker goes through what it has row by row, so where rows are no multiple of that, it has parts of
more rows than it would have whole ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from popc.cost.formulas.numbers import WORKERS, Count

__all__ = ["share_rows"]


def share_rows(rows: Count, width: Count, item: Callable[[Count], Count]) -> tuple[Count, Count]:
    """Cycles of the busiest and of the least busy worker for ``rows`` rows of ``width`` elements.

    ``item``: the cycles of one for a number of elements of a row, at least 1.
    """
    width = np.maximum(width, 1)
    bounds = np.multiply.outer(np.arange(WORKERS + 1), rows * width) // WORKERS
    row = bounds // width
    place = bounds - row * width  # in its row
    begin, end, whole = bounds[:-1], bounds[1:], place[1:] == 0
    last = row[1:] - whole  # row of the last element
    single = row[:-1] == last
    head = np.where(single, end - begin, width - place[:-1])
    tail = np.where(whole, width, place[1:])
    more = item(tail) + (last - row[:-1] - 1) * item(width)
    cycles = item(np.maximum(head, 1)) + np.where(single, 0, more)
    cycles = np.where(end > begin, cycles, 0)
    return cycles.max(axis=0), cycles.min(axis=0)
