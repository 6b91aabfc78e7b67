"""Look-ahead: each node is chosen by what could come after it."""

from __future__ import annotations

from typing import Final, NamedTuple

from popc.schedule.algorithms.kahn import GreedyNodes
from popc.schedule.problem import OrderingProblem

__all__ = ["look_ahead_order"]

_WIDEST: Final = 16  # ready nodes that are considered in one place


class _Outlook(NamedTuple):
    """The lowest point that can be reached: what is live there, the most live on the way."""

    live: int
    peak: int


def look_ahead_order(problem: OrderingProblem, depth: int, space: int) -> list[int]:
    """Choose each node by trying what could follow.

    Sequences of up to ``depth`` nodes are tried, beginning with each of the most promising ready
    nodes, until ``space`` nodes have been looked at.  A node after which memory can come down to
    what is live now goes first; then the one with the lowest peak on the way, then the one with
    the least live at its lowest point.
    """
    walker = _Walker(problem)
    ready = GreedyNodes(problem)
    for node in problem.sources():
        ready.push(node)
    order: list[int] = []
    while candidates := ready.peek(_WIDEST):
        node = candidates[0]
        if len(candidates) > 1:
            node = walker.choose(candidates, depth, space)
        order.append(node)
        ready.take(node)
        for other in walker.enter(node):
            ready.push(other)
    return order


class _Walker:
    """The nodes that have run so far; `enter` runs a node, `leave` takes the last one back."""

    def __init__(self, problem: OrderingProblem) -> None:
        self.problem = problem
        self.left = problem.count_readers()
        self.waiting = list(problem.waiting)
        self.live = problem.base + sum(problem.weights[buffer] for buffer in problem.initial)

    def choose(self, candidates: list[int], depth: int, space: int) -> int:
        """The best of some ready nodes."""
        share = max(space // len(candidates), 1)
        outlooks = {node: self._look(node, depth, share) for node in candidates}
        live = self.live

        def badness(node: int) -> tuple[int, int, int]:
            lowest, peak = outlooks[node]
            return max(lowest - live, 0), peak, lowest

        return min(candidates, key=badness)

    def _look(self, node: int, depth: int, space: int) -> _Outlook:
        """The lowest point that can be reached by running ``node`` and what it makes ready."""
        peak = self._step(node)
        following = self.enter(node)
        best = _Outlook(self.live, peak)
        if depth > 1 and following:
            share = (space - 1) // len(following)
            for other in following if share else ():
                live, higher = self._look(other, depth - 1, share)
                best = min(best, _Outlook(live, max(peak, higher)))
        self.leave(node)
        return best

    def _step(self, node: int) -> int:
        step = self.live + self.problem.rise[node]
        for nbytes, buffers in self.problem.takes[node]:
            if any(self.left[buffer] == 1 for buffer in buffers):
                step -= nbytes
        return step

    def enter(self, node: int) -> list[int]:
        """Run ``node``; the nodes that have become ready by it."""
        problem, left = self.problem, self.left
        self.live += sum(problem.weights[buffer] for buffer in problem.makes[node])
        for buffer in problem.reads[node]:
            left[buffer] -= 1
            if left[buffer] == 0:
                self.live -= problem.frees[buffer]
        now: list[int] = []
        for other in problem.successors[node]:
            self.waiting[other] -= 1
            if self.waiting[other] == 0:
                now.append(other)
        return now

    def leave(self, node: int) -> None:
        """Undo `enter`."""
        problem, left = self.problem, self.left
        for other in problem.successors[node]:
            self.waiting[other] += 1
        for buffer in problem.reads[node]:
            if left[buffer] == 0:
                self.live += problem.frees[buffer]
            left[buffer] += 1
        self.live -= sum(problem.weights[buffer] for buffer in problem.makes[node])
