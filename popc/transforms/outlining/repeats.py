"""Repeated parts of a sequence of numbers.

A part is *maximal* if it cannot be made longer without losing occurrences.  A suffix array has them
all: neighbours in it have a prefix in common, and ranges of neighbours with a long one are the
maximal parts, of which there are fewer than numbers.  An occurrence that begins before another one
ends shows that a part has a period; then the period is what repeats, and is what is given.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from popc_runtime.ground.frozen import frozen, mutable

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Repeat", "Suffixes"]

_Integers: TypeAlias = "npt.NDArray[np.int64]"


class Repeat(NamedTuple):
    """A part of ``length`` that occurs at ``start``, and elsewhere."""

    start: int
    length: int


@frozen
class Suffixes:
    """The positions of a sequence in the order of what begins there.

    Attributes:
        order: The positions.
        rank: The number of each position in ``order``.
        common: How many numbers what begins at ``order[i - 1]`` and ``order[i]`` have in common.
    """

    order: _Integers
    rank: _Integers
    common: _Integers

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Suffixes:
        """Sort by prefixes of doubling length."""
        count = len(numbers)
        values = np.unique(np.asarray(numbers, np.int64), return_inverse=True)[1].astype(np.int64)
        order = np.argsort(values, kind="stable").astype(np.int64)
        step = 1
        while step < count:
            following = np.full(count, -1, np.int64)
            following[: count - step] = values[step:]
            order = np.lexsort((following, values)).astype(np.int64)
            first, second = values[order], following[order]
            new = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
            values[order] = np.concatenate(([0], np.cumsum(new)))[:count]
            if count and int(values.max()) == count - 1:
                break
            step *= 2
        rank = np.empty(count, np.int64)
        rank[order] = np.arange(count)
        return cls(order, rank, _common_prefixes(numbers, order, rank))

    def occurrences(self, start: int, length: int) -> list[int]:
        """The places where what begins at ``start`` occurs, in order."""
        low, high = self.range(start, length)
        return sorted(self.order[low:high].tolist())

    def range(self, start: int, length: int) -> tuple[int, int]:
        """The range of the occurrences in ``order``: begin, and end (exclusive)."""
        rank = int(self.rank[start])
        short = np.flatnonzero(self.common < length)
        position = int(np.searchsorted(short, rank, side="right"))
        low = int(short[position - 1])
        high = int(short[position]) if position < len(short) else len(self.order)
        return low, high

    def repeats(self) -> Iterator[Repeat]:
        """Every maximal part, or its period, that occurs more than once; some several times."""
        stack: list[_Range] = []
        common = [*self.common.tolist(), 0]
        for index in range(len(self.order)):
            current = _Range(0, [int(self.order[index])])
            length = common[index + 1]
            while stack and stack[-1].length > length:
                done = stack.pop()
                done.take(current)
                current = done
                yield current.repeat()
            if stack and stack[-1].length == length:
                stack[-1].take(current)
            elif length > 0:
                current = _Range(length, current.positions, current.gap)
                stack.append(current)


@mutable
class _Range:
    """Positions in order, the smallest distance between two, and what all have in common."""

    length: int
    positions: list[int]
    gap: int = 1 << 62

    def take(self, other: _Range) -> None:
        """Add the positions of ``other``; the smaller list goes into the larger one."""
        if len(other.positions) > len(self.positions):
            self.positions, other.positions = other.positions, self.positions
        self.gap = min(self.gap, other.gap)
        for position in other.positions:
            insort(self.positions, position)
            index = _index(self.positions, position)
            for neighbour in self.positions[max(index - 1, 0) : index + 2]:
                if neighbour != position:
                    self.gap = min(self.gap, abs(neighbour - position))

    def repeat(self) -> Repeat:
        """The repeat found; of one number again and again, two."""
        return Repeat(self.positions[0], min(self.length, max(self.gap, 2)))


def _index(ordered: list[int], value: int) -> int:
    low, high = 0, len(ordered)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if ordered[middle] < value else (low, middle)
    return low


def _common_prefixes(numbers: Sequence[int], order: _Integers, rank: _Integers) -> _Integers:
    """By the algorithm of Kasai et al.: from one position to the next at most one gets lost."""
    count = len(numbers)
    common = np.zeros(count, np.int64)
    places, ranks = order.tolist(), rank.tolist()
    length = 0
    for start in range(count):
        if ranks[start] == 0:
            length = 0
            continue
        other = places[ranks[start] - 1]
        while (
            start + length < count
            and other + length < count
            and numbers[start + length] == numbers[other + length]
        ):
            length += 1
        common[ranks[start]] = length
        length = max(length - 1, 0)
    return common
