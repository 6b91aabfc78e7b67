"""Offsets for buffers whose lifetimes are known: those alive together must not overlap.

The problem is NP-hard, so several heuristics run and the best result counts.  No result can be
below the most bytes that are alive at one time; one that reaches this bound ends the search, which
in practice the first, cheap heuristic often does.  The others look, for every buffer, at all that
overlap it in time: when thousands are alive together they are left out.  The last one learns from
its failures: what has ended above the bound is placed earlier in the next attempt.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from operator import add
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from popc_runtime.ground.frozen import frozen

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["BufferOffsets", "pack"]

Integers: TypeAlias = "npt.NDArray[np.int64]"

# Attempts of the last heuristic, pairs that they may look at, the seed of its steps.
_MOST_ATTEMPTS: Final = 150
_MOST_ATTEMPTED: Final = 1_000_000
_SEED: Final = 1

# Pairs of buffers that overlap in time up to which every heuristic is worth its time (seconds).
_MOST_PAIRS: Final = 50_000_000


@frozen
class BufferOffsets:
    """Offset of every buffer, the bytes that all need, and the bound that these cannot go below."""

    offsets: tuple[int, ...]
    height: int
    bound: int


@frozen
class _Buffers:
    """First and last tick (inclusive) and size of every buffer."""

    first: Integers
    last: Integers
    size: Integers


def pack(first: Sequence[int], last: Sequence[int], sizes: Sequence[int]) -> BufferOffsets:
    """The best offsets found for buffers alive from tick ``first`` to ``last``, inclusive.

    Offsets are multiples of whatever all sizes are multiples of.
    """
    if not sizes:
        return BufferOffsets((), 0, 0)
    buffers = _Buffers(*(np.asarray(values, np.int64) for values in (first, last, sizes)))
    bound, pairs = _lower_bound(buffers), _count_overlaps(buffers)
    best: Sequence[int] = ()
    height = sum(sizes) + 1
    for heuristic in _HEURISTICS:
        offsets = heuristic(buffers)
        needed = max(map(add, offsets, sizes))
        if needed < height:
            best, height = offsets, needed
        if height == bound or pairs > _MOST_PAIRS:
            break
    return BufferOffsets(tuple(best), height, bound)


def _lower_bound(buffers: _Buffers) -> int:
    """The most bytes that are alive at one time."""
    changes = np.zeros(int(buffers.last.max()) + 2, np.int64)
    np.add.at(changes, buffers.first, buffers.size)
    np.subtract.at(changes, buffers.last + 1, buffers.size)
    return int(changes.cumsum().max())


def _count_overlaps(buffers: _Buffers) -> int:
    """Ordered pairs of buffers that are alive at the same time, each buffer with itself too."""
    begun = np.sort(buffers.first).searchsorted(buffers.last, side="right")
    ended = np.sort(buffers.last).searchsorted(buffers.first, side="left")
    return int((begun - ended).sum())


# -- in order of time ------------------------------------------------------------------------------


class _FreeList:
    """Memory as an allocator at run time sees it: the smallest gap that fits is taken."""

    def __init__(self) -> None:
        self._height = 0
        self._gaps: list[tuple[int, int]] = []  # (size, offset), sorted
        self._size_at: dict[int, int] = {}  # offset of a gap -> its size
        self._offset_before: dict[int, int] = {}  # end of a gap -> its offset

    def allocate(self, size: int) -> int:
        """The offset of ``size`` bytes, at the end of memory if no gap is large enough."""
        position = bisect_left(self._gaps, (size, 0))
        if position < len(self._gaps):
            gap, offset = self._gaps[position]
            self._remove(offset)
            if gap > size:
                self._insert(offset + size, gap - size)
            return offset
        offset = self._offset_before.get(self._height, self._height)
        if offset != self._height:
            self._remove(offset)
        self._height = offset + size
        return offset

    def free(self, offset: int, size: int) -> None:
        """Give memory back; neighbouring gaps become one."""
        below = self._offset_before.get(offset)
        if below is not None:
            size += self._remove(below)
            offset = below
        if offset + size in self._size_at:
            size += self._remove(offset + size)
        self._insert(offset, size)

    def _insert(self, offset: int, size: int) -> None:
        insort(self._gaps, (size, offset))
        self._size_at[offset] = size
        self._offset_before[offset + size] = offset

    def _remove(self, offset: int) -> int:
        size = self._size_at.pop(offset)
        del self._offset_before[offset + size]
        del self._gaps[bisect_left(self._gaps, (size, offset))]
        return size


def _in_order_of_time(buffers: _Buffers) -> list[int]:
    """Allocate and free as time goes by; of those that begin together, the largest first."""
    memory = _FreeList()
    offsets = [0] * len(buffers.size)
    starts = np.lexsort((-buffers.size, buffers.first)).tolist()
    ends = np.argsort(buffers.last, kind="stable").tolist()
    first, last, size = buffers.first.tolist(), buffers.last.tolist(), buffers.size.tolist()
    freed = 0
    for index in starts:
        while last[ends[freed]] < first[index]:
            memory.free(offsets[ends[freed]], size[ends[freed]])
            freed += 1
        offsets[index] = memory.allocate(size[index])
    return offsets


# -- in order of importance ------------------------------------------------------------------------


class _Placed:
    """The buffers placed so far, found by time.

    Buffers are ranked by their first tick and kept in rows of equal length, with the latest last
    tick of each row: a query looks only into rows that hold an overlap, or might.
    """

    _ROW = 256

    def __init__(self, buffers: _Buffers) -> None:
        count = len(buffers.first)
        rows = -(-count // self._ROW)
        order = np.argsort(buffers.first, kind="stable")
        self._ranks = np.empty(count, np.int64)
        self._ranks[order] = np.arange(count)
        self._sorted_first = buffers.first[order]
        self._first = np.full((rows, self._ROW), np.iinfo(np.int64).max)
        self._first.reshape(-1)[:count] = self._sorted_first
        self._last = np.full((rows, self._ROW), -1)  # -1: not placed
        self._row_last = np.full(rows, -1)
        self._offset = np.zeros(count, np.int64)
        self._end = np.zeros(count, np.int64)

    def add(self, index: int, last: int, offset: int, size: int) -> None:
        """Place a buffer."""
        rank = int(self._ranks[index])
        row, column = divmod(rank, self._ROW)
        self._last[row, column] = last
        self._row_last[row] = max(int(self._row_last[row]), last)
        self._offset[rank] = offset
        self._end[rank] = offset + size

    def overlapping(self, first: int, last: int) -> tuple[Integers, Integers]:
        """Offsets and ends of the buffers alive at some tick from ``first`` to ``last``."""
        started = int(self._sorted_first.searchsorted(last, side="right"))
        rows = (self._row_last[: -(-started // self._ROW)] >= first).nonzero()[0]
        alive = (self._last[rows] >= first) & (self._first[rows] <= last)
        row, column = alive.nonzero()
        ranks = rows[row] * self._ROW + column
        offsets = self._offset[ranks]
        order = offsets.argsort(kind="stable")
        return offsets[order], self._end[ranks][order]


def _best_fit(offsets: Integers, ends: Integers, size: int) -> int:
    """The lowest of the smallest gaps between the given blocks that ``size`` bytes fit into."""
    if not len(offsets):
        return 0
    tops = np.maximum.accumulate(ends)
    bottoms = np.concatenate(([0], tops[:-1]))
    gaps = offsets - bottoms
    fitting = (gaps >= size).nonzero()[0]
    if not len(fitting):
        return int(tops[-1])
    return int(bottoms[fitting[gaps[fitting].argmin()]])


def _in_order(buffers: _Buffers, order: Integers) -> list[int]:
    """Place buffers in ``order``, each into the smallest gap that fits during its whole life."""
    placed = _Placed(buffers)
    offsets = [0] * len(order)
    first, last, sizes = buffers.first.tolist(), buffers.last.tolist(), buffers.size.tolist()
    for index in order.tolist():
        size = sizes[index]
        offset = _best_fit(*placed.overlapping(first[index], last[index]), size)
        placed.add(index, last[index], offset, size)
        offsets[index] = offset
    return offsets


def _by_size(buffers: _Buffers) -> Integers:
    """The largest first; of equal sizes the longer life."""
    return np.lexsort((buffers.first, buffers.first - buffers.last, -buffers.size))


def _by_life(buffers: _Buffers) -> Integers:
    """The longest life first, so that what lives long lies at the bottom, out of the way."""
    return np.lexsort((buffers.first, -buffers.size, buffers.first - buffers.last))


def _by_area(buffers: _Buffers) -> Integers:
    """The largest product of size and length of life first."""
    return np.lexsort((buffers.first, (buffers.first - buffers.last) * buffers.size))


def _largest_first(buffers: _Buffers) -> list[int]:
    return _in_order(buffers, _by_size(buffers))


def _longest_first(buffers: _Buffers) -> list[int]:
    return _in_order(buffers, _by_life(buffers))


# -- learning from failures ------------------------------------------------------------------------


def _by_trial(buffers: _Buffers) -> list[int]:
    """Place buffers again and again; those that end above the bound go earlier the next time.

    By how much is random, so that attempts do not go round in circles.
    """
    attempts = min(_MOST_ATTEMPTS, _MOST_ATTEMPTED // _count_overlaps(buffers))
    if not attempts:
        return _in_order_of_time(buffers)  # the cheapest
    first, last, sizes = buffers.first, buffers.last, buffers.size.tolist()
    overlaps = [
        ((first <= end) & (last >= begin)).nonzero()[0].tolist()
        for begin, end in zip(first.tolist(), last.tolist(), strict=True)
    ]
    bound, count = _lower_bound(buffers), len(sizes)
    orders = [by(buffers) for by in (_by_size, _by_life, _by_area)]
    ranks = [np.argsort(order).astype(np.float64) for order in orders]
    import random

    dice = random.Random(_SEED)  # noqa: S311 - not for cryptography
    best: list[int] = []
    height = sum(sizes) + 1
    for attempt in range(attempts):
        rank = ranks[attempt % len(ranks)]
        offsets = _lowest_fit(np.argsort(rank, kind="stable").tolist(), overlaps, sizes)
        ends = list(map(add, offsets, sizes))
        if max(ends) < height:
            best, height = offsets, max(ends)
        if height == bound:
            break
        for index, end in enumerate(ends):
            if end > bound:
                rank[index] -= count * dice.uniform(0.05, 0.5)
    return best


def _lowest_fit(
    order: Sequence[int], overlaps: Sequence[Sequence[int]], sizes: Sequence[int]
) -> list[int]:
    """Place buffers in ``order``, each as low as those placed before let it be."""
    offsets = [0] * len(sizes)
    taken = [-1] * len(sizes)  # offset and end in one number: numbers are sorted fastest
    bits = sum(sizes).bit_length()
    lower = (1 << bits) - 1
    for index in order:
        top, size = 0, sizes[index]
        for place in sorted([taken[other] for other in overlaps[index] if taken[other] >= 0]):
            if (place >> bits) - top >= size:
                break
            end = place & lower
            if end > top:  # noqa: PLR1730 - a call would take as long as all the rest
                top = end
        offsets[index] = top
        taken[index] = top << bits | top + size
    return offsets


_HEURISTICS: Final[tuple[Callable[[_Buffers], list[int]], ...]] = (
    _in_order_of_time,  # first: it is the cheapest
    _largest_first,
    _longest_first,
    _by_trial,
)
