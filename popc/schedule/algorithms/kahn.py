"""Kahn's algorithm: repeatedly take one of the nodes that are ready; a tie-breaker says which.

Among ready nodes those of the highest rank go first; the tie-breaker chooses among equals.  Each
tie-breaker is a container of ready nodes whose `pop` makes the choice.  Where C has been built, it
makes the same orders, but for random ones.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final, Protocol

from popc.options import TieBreaker
from popc.schedule.flat import find_native, flattened
from popc.schedule.problem import OrderingProblem

__all__ = ["GreedyNodes", "kahn_order", "list_order", "order_by_definition"]

_SEED: Final = 1  # any number will do: a pseudo-random order is the same on every run


class ReadyNodes(Protocol):
    """The ready nodes.  What `pop` returns counts as executed from then on."""

    def push(self, node: int) -> None:
        """Add a node that has become ready."""

    def pop(self) -> int:
        """Remove and return the node to run next.

        Raises:
            IndexError: nothing is ready.
        """


def kahn_order(problem: OrderingProblem, tie_breaker: TieBreaker) -> list[int]:
    """The nodes of ``problem`` in an order that its constraints allow."""
    if tie_breaker is TieBreaker.FIFO:
        return list_order(problem, [0] * len(problem))
    if tie_breaker is TieBreaker.RANDOM:
        return _run(problem, _Random(problem))
    order = _in_c(problem, _open_ties(problem), is_greedy=True)
    return _run(problem, GreedyNodes(problem)) if order is None else order


def list_order(problem: OrderingProblem, keys: Sequence[int]) -> list[int]:
    """The order in which the ready node of the smallest key goes first.

    Of equal ones that goes which became ready last; of those ready from the start, the last.
    """
    order = _in_c(problem, keys, is_greedy=False)
    return _run(problem, _ByKey(problem, keys)) if order is None else order


def order_by_definition(problem: OrderingProblem, keys: Sequence[int] | None) -> list[int]:
    """The definition of `list_order`, or of the greedy order if there are no keys, in Python."""
    ready = GreedyNodes(problem) if keys is None else _ByKey(problem, keys)
    return _run(problem, ready)


def _in_c(problem: OrderingProblem, levels: Sequence[int], *, is_greedy: bool) -> list[int] | None:
    """The order that `_run` makes, if C has been built."""
    native = find_native()
    tables = flattened(problem, range(len(problem))) if native is not None else None
    if native is None or tables is None:
        return None
    native.order_nodes(tables.columns, tables.order, array("q", levels), is_greedy)
    return tables.order.tolist()


def _open_ties(problem: OrderingProblem) -> list[int]:
    """For each node the change of the number of tied pairs of which one half has run."""
    levels = [0] * len(problem)
    for first, second in problem.ties:
        levels[first] += 1
        levels[second] -= 1
    return levels


def _run(problem: OrderingProblem, ready: ReadyNodes) -> list[int]:
    """All nodes in the order in which ``ready`` gives them away."""
    waiting = list(problem.waiting)
    for node in problem.sources():
        ready.push(node)
    order: list[int] = []
    while len(order) < len(problem):
        node = ready.pop()
        order.append(node)
        for later in problem.successors[node]:
            waiting[later] -= 1
            if waiting[later] == 0:
                ready.push(later)
    return order


class _ByKey:
    """Takes the highest rank, then the smallest key, then what became ready last."""

    def __init__(self, problem: OrderingProblem, keys: Sequence[int]) -> None:
        self._ranks, self._keys = problem.ranks, keys
        self._heap: list[tuple[int, int, int, int]] = []
        self._pushes = 0

    def push(self, node: int) -> None:
        self._pushes += 1
        heappush(self._heap, (-self._ranks[node], self._keys[node], -self._pushes, node))

    def pop(self) -> int:
        return heappop(self._heap)[3]


class _Random:
    """Takes any node: one list per rank, from which a random element is swapped out."""

    def __init__(self, problem: OrderingProblem) -> None:
        self._random = random.Random(_SEED)  # noqa: S311 - not for cryptography
        self._ranks = problem.ranks
        self._heap: list[int] = []
        self._nodes: dict[int, list[int]] = {}

    def push(self, node: int) -> None:
        rank = -self._ranks[node]
        nodes = self._nodes.setdefault(rank, [])
        if not nodes:
            heappush(self._heap, rank)
        nodes.append(node)

    def pop(self) -> int:
        nodes = self._nodes[self._heap[0]]
        index = self._random.randrange(len(nodes))
        nodes[index], nodes[-1] = nodes[-1], nodes[index]
        node = nodes.pop()
        if not nodes:
            heappop(self._heap)
        return node


class GreedyNodes:
    """Takes the node whose execution changes the live bytes by the smallest signed amount.

    The amount is what the node makes less what dies with it.  Before that comes the change of the
    number of tied pairs of which one half has run.  While a node is ready its amount changes only
    when one of its buffers loses its second-last reader, and only downwards: then the node is
    pushed again with the new amount, and the outdated entry is skipped when it surfaces.
    """

    def __init__(self, problem: OrderingProblem) -> None:
        self._problem = problem
        self._left = problem.count_readers()
        self._readers: list[list[int]] = [[] for _ in problem.weights]
        for node, buffers in enumerate(problem.reads):
            for buffer in buffers:
                self._readers[buffer].append(node)
        ranks = [-rank for rank in problem.ranks]
        self._levels = list(zip(ranks, _open_ties(problem), strict=True))
        # level, change of live bytes, number of the push (negated), node
        self._heap: list[tuple[tuple[int, int], int, int, int]] = []
        self._entries: dict[int, tuple[tuple[int, int], int, int, int]] = {}
        self._executed = [False] * len(problem)
        self._pushes = 0

    def push(self, node: int) -> None:
        """Add a node that has become ready."""
        self._pushes += 1
        self._enqueue((self._levels[node], self._change(node), -self._pushes, node))

    def pop(self) -> int:
        """Execute the best node."""
        (node,) = self.peek(1)
        self.take(node)
        return node

    def peek(self, count: int) -> list[int]:
        """Up to ``count`` ready nodes of the level of the best one, the best first."""
        found: list[tuple[tuple[int, int], int, int, int]] = []
        while self._heap and len(found) < count:
            entry = heappop(self._heap)
            if self._entries.get(entry[3]) is not entry:
                continue
            found.append(entry)
            if entry[0] != found[0][0]:
                break
        for entry in found:
            heappush(self._heap, entry)
        return [entry[3] for entry in found if entry[0] == found[0][0]]

    def take(self, node: int) -> None:
        """Execute a ready node."""
        del self._entries[node]
        self._executed[node] = True
        for buffer in self._problem.reads[node]:
            self._left[buffer] -= 1
            if self._left[buffer] == 1 and not self._problem.stays[buffer]:
                self._revise(buffer)

    def _enqueue(self, entry: tuple[tuple[int, int], int, int, int]) -> None:
        self._entries[entry[3]] = entry
        heappush(self._heap, entry)

    def _change(self, node: int) -> int:
        problem, left = self._problem, self._left
        appears = sum(problem.weights[buffer] for buffer in problem.makes[node])
        dies = sum(problem.frees[buffer] for buffer in problem.reads[node] if left[buffer] == 1)
        return appears - dies

    def _revise(self, buffer: int) -> None:
        last = next(node for node in self._readers[buffer] if not self._executed[node])
        if last in self._entries:
            level, change, push, _ = self._entries[last]
            self._enqueue((level, change - self._problem.frees[buffer], push, last))
