"""A plain shift search, and exact optima, to compare popc's orders with.

The search is what schedulers that only shift do: from one order, blocks of growing length go to
where they lower the sum of live bytes the most, until no block up to a length can.  Problems are
those of `benchmarks.random_orders`: node i makes buffer i and reads those of its parents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from popc.schedule.problem import OrderingProblem

__all__ = ["find_optimum", "shift_plainly"]

_LONGEST: Final = 16


def shift_plainly(problem: OrderingProblem, order: Sequence[int]) -> list[int]:
    """``order`` after shifts of blocks of up to sixteen nodes, over any distance."""
    search = _Search(problem, order)
    length = 1
    while length <= _LONGEST:
        length = 1 if search.shift_all(length) else length + 1
    return search.order


class _Search:
    def __init__(self, problem: OrderingProblem, order: Sequence[int]) -> None:
        self.parents = problem.reads
        self.weights, self.stays = problem.weights, problem.stays
        self.order = list(order)
        self.place = [0] * len(order)
        self.death = [0] * len(order)  # of each buffer, the place of the last reader
        self._refresh()

    def _refresh(self) -> None:
        for place, node in enumerate(self.order):
            self.place[node] = place
            for buffer in self.parents[node]:
                self.death[buffer] = place

    def shift_all(self, length: int) -> bool:
        """Shift every block of ``length`` nodes for which that pays; whether there was one."""
        moved = False
        for start in range(len(self.order) - length + 1):
            moves = [(0, start), *self._earlier(start, length), *self._later(start, length)]
            gain, target = min(moves)
            if gain < 0:
                block = self.order[start : start + length]
                del self.order[start : start + length]
                self.order[target:target] = block
                self._refresh()
                moved = True
        return moved

    def _dying(self, start: int, end: int) -> dict[int, int]:
        """The buffers that die in a block, and where."""
        read = {buffer for node in self.order[start:end] for buffer in self.parents[node]}
        places = {b: self.death[b] for b in read if not self.stays[b]}
        return {buffer: place for buffer, place in places.items() if place < end}

    def _earlier(self, start: int, length: int) -> Iterator[tuple[int, int]]:
        """The change of the sum, and the target, for each place before ``start``."""
        weights, block = self.weights, self.order[start : start + length]
        fixed = {parent for node in block for parent in self.parents[node]}
        dying = self._dying(start, start + length)
        made, change = sum(weights[node] for node in block), 0
        loose = sum(weights[buffer] for buffer in dying)
        for target in range(start - 1, -1, -1):
            node = self.order[target]
            if node in fixed:
                return
            change += made - length * weights[node]
            for buffer in self.parents[node]:
                if buffer in dying:  # now this node is its last reader
                    loose -= weights[buffer]
                    change += weights[buffer] * (start + length - 1 - dying.pop(buffer))
                elif self.death[buffer] == target:
                    change += length * weights[buffer]
            change -= loose
            yield change, target

    def _later(self, start: int, length: int) -> Iterator[tuple[int, int]]:
        """The change of the sum, and the target, for each place behind ``start``."""
        weights, end = self.weights, start + length
        block = self.order[start:end]
        inside = set(block)
        loose = sum(weights[buffer] for buffer in self._dying(start, end))
        read = {b: start + i for i, node in enumerate(block) for b in self.parents[node]}
        made, change = sum(weights[node] for node in block), 0
        for place in range(end, len(self.order)):
            node = self.order[place]
            if not inside.isdisjoint(self.parents[node]):
                return
            change += loose - made + length * weights[node]
            for buffer in self.parents[node]:
                if self.death[buffer] == place:
                    if buffer in read:  # now the block has its last reader
                        loose += weights[buffer]
                        change += weights[buffer] * (read[buffer] + 1 - end)
                    else:
                        change -= length * weights[buffer]
            yield change, place - length + 1


def find_optimum(problem: OrderingProblem) -> tuple[int, int]:
    """The lowest peak of all orders, and the lowest sum of those with that peak: by enumeration.

    All sets of nodes that may have run are visited, so there must be few.
    """
    peak = _lowest(problem, 1 << 62, is_peak=True)
    return peak, _lowest(problem, peak, is_peak=False)


def _lowest(problem: OrderingProblem, most: int, *, is_peak: bool) -> int:
    """The lowest peak, or the lowest sum, of orders with no step above ``most``."""
    count = len(problem)
    readers = [0] * count
    for node, buffers in enumerate(problem.reads):
        for buffer in buffers:
            readers[buffer] |= 1 << node
    weights, stays = problem.weights, problem.stays
    reached = {0: 0}
    for _ in range(count):
        following: dict[int, int] = {}
        for done, cost in reached.items():
            live = sum(
                weights[b]
                for b in range(count)
                if done >> b & 1 and (stays[b] or readers[b] & ~done)
            )
            for node in range(count):
                if done >> node & 1 or any(not done >> b & 1 for b in problem.reads[node]):
                    continue
                step = live + weights[node]
                if step <= most:
                    after, now = done | 1 << node, max(cost, step) if is_peak else cost + step
                    following[after] = min(following.get(after, now), now)
        reached = following
    return reached[(1 << count) - 1]
