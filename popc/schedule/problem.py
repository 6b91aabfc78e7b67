"""The scheduling problem without its graph: numbered nodes, their constraints, their memory.

A node is an op, a barrier, or several ops that run one right after the other.  Memory comes in
buffers.  A buffer appears when a node makes it (or is there from the start) and disappears when the
last of the nodes that read it has run; buffers that lie in one another share the time of their
disappearance, so that one of them is read and freed for all.

While a node runs, `OrderingProblem.rise` bytes are needed on top of what was live before it, less
what it takes over: if a buffer dies in this step, the node's result may be written over it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeVar

__all__ = [
    "Order",
    "OrderingProblem",
    "Takeover",
    "order_topologically",
]

Order = Sequence[int]
_Fact = TypeVar("_Fact")


class Takeover(NamedTuple):
    """``nbytes`` fewer are needed in a step if one of ``buffers`` dies in it."""

    nbytes: int
    buffers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OrderingProblem:
    """The problem of a scheduler; lists are indexed by the number of a node or a buffer.

    Attributes:
        members: Of each node, the numbers of the ops that it stands for, in order; none for a
            barrier.
        successors: Of each node, the nodes that wait for it.
        waiting: Of each node, the number of nodes that it waits for.
        ranks: Of each node, the rank of its priority, 0 the lowest: higher ranks run earlier.
        ties: Pairs of nodes that should run close to each other.
        weights: Of each buffer, the bytes that appear with it.
        frees: Of each buffer, the bytes that disappear with it; 0 if another is freed for it.
        freed_with: Of each buffer, the one with which it disappears, itself as a rule.
        stays: Of each buffer, whether it never disappears.
        reads: Of each node, the buffers that it reads.
        makes: Of each node, the buffers that it makes, without those that nobody needs.
        rise: Of each node, the bytes needed in its step.
        takes: Of each node, what it may take over.
        initial: The buffers that are there from the start, without those that nobody needs.
        floor: Bytes live before the first step.
        base: Bytes live all the time that belong to no buffer.
        found: Facts that others have found out about the problem, by name.
    """

    members: list[tuple[int, ...]]
    successors: list[list[int]]
    waiting: list[int]
    ranks: list[int]
    ties: list[tuple[int, int]]
    weights: list[int]
    frees: list[int]
    freed_with: list[int]
    stays: list[bool]
    reads: list[tuple[int, ...]]
    makes: list[tuple[int, ...]]
    rise: list[int]
    takes: list[tuple[Takeover, ...]]
    initial: tuple[int, ...]
    floor: int
    base: int = 0
    found: dict[str, Any] = field(
        init=False, repr=False, compare=False, default_factory=dict[str, Any]
    )

    def __len__(self) -> int:
        return len(self.members)

    @property
    def has_levels(self) -> bool:
        """True if anything matters more than memory: priorities or ties."""
        return bool(self.ties) or len(set(self.ranks)) > 1

    def remembered(self, name: str, find: Callable[[OrderingProblem], _Fact]) -> _Fact:
        """The answer of ``find`` about the problem; it is asked once."""
        if name not in self.found:
            self.found[name] = find(self)
        fact: _Fact = self.found[name]
        return fact

    def freed_together(self) -> dict[int, list[int]]:
        """The buffers that are freed with each, those that are there from the start first."""
        parts: dict[int, list[int]] = {}
        for buffer in (*self.initial, *chain.from_iterable(self.makes)):
            parts.setdefault(self.freed_with[buffer], []).append(buffer)
        return parts

    def count_readers(self) -> list[int]:
        """The number of nodes that read each buffer, and one more if it stays."""
        counts = list(map(int, self.stays))
        for buffers in self.reads:
            for buffer in buffers:
                counts[buffer] += 1
        return counts

    def predecessors(self) -> list[list[int]]:
        """The nodes that each node waits for."""
        return self.remembered("predecessors", _find_predecessors)

    def sources(self) -> list[int]:
        """The nodes that wait for none."""
        return [node for node, count in enumerate(self.waiting) if count == 0]

    def topological(self) -> list[int]:
        """The nodes in an order that the constraints allow; shorter if they have a cycle."""
        return self.remembered("topological", lambda it: order_topologically(it.successors)).copy()

    def only_order(self) -> list[int] | None:
        """The order of all nodes, if the constraints allow no other."""
        order = self.topological()
        forced = all(later in self.successors[node] for node, later in pairwise(order))
        return order if forced else None

    def with_barriers(self, ops: Iterable[int]) -> list[int]:
        """Nodes of one op each in the given order, and barriers as early as they can stand."""
        waiting = list(self.waiting)
        order = [node for node in self.sources() if not self.members[node]]
        placed = 0
        for op in (*ops, None):
            while placed < len(order):  # grows while it is walked
                for later in self.successors[order[placed]]:
                    waiting[later] -= 1
                    if waiting[later] == 0 and not self.members[later]:
                        order.append(later)
                placed += 1
            if op is not None:
                order.append(op)
        return order

    def expand(self, order: Iterable[int]) -> Iterator[int]:
        """The ops of ``order``."""
        for node in order:
            yield from self.members[node]


def _find_predecessors(problem: OrderingProblem) -> list[list[int]]:
    earlier: list[list[int]] = [[] for _ in problem.successors]
    for node, others in enumerate(problem.successors):
        for other in others:
            earlier[other].append(node)
    return earlier


def order_topologically(successors: Sequence[Iterable[int]]) -> list[int]:
    """Nodes before their successors; those of cycles are left out, and what follows them."""
    waiting = [0] * len(successors)
    for other in chain.from_iterable(successors):
        waiting[other] += 1
    order = [node for node, count in enumerate(waiting) if count == 0]
    for node in order:  # grows while it is walked
        for other in successors[node]:
            left = waiting[other] = waiting[other] - 1
            if left == 0:
                order.append(other)
    return order
