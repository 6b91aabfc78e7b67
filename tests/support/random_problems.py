"""Random scheduling problems for hypothesis, and what is known about them from first principles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popc.schedule.problem import OrderingProblem, Takeover

__all__ = ["all_orders", "is_legal", "lowest_peak", "naive_steps", "problems"]


@dataclass
class _Builder:
    """A problem that grows buffer by buffer."""

    draw: DrawFn
    count: int
    weights: list[int] = field(default_factory=list[int])
    stays: list[bool] = field(default_factory=list[bool])
    reads: list[list[int]] = field(default_factory=list[list[int]])
    makes: list[list[int]] = field(default_factory=list[list[int]])
    rise: list[int] = field(default_factory=list[int])
    edges: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    frees: list[int] = field(default_factory=list[int])
    freed_with: list[int] = field(default_factory=list[int])

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def add_buffer(self, maker: int | None) -> None:
        """One that ``maker`` makes, or that is there from the start, and some later nodes read."""
        first = 0 if maker is None else maker + 1
        readers = [node for node in range(first, self.count) if self.number(0, 2) == 0]
        buffer = len(self.weights)
        self.stays.append(self.number(0, 4) == 0)
        self.weights.append(self.number(0, 6))
        for reader in readers:
            self.reads[reader].append(buffer)
        if maker is not None:
            self.edges.update((maker, reader) for reader in readers)
            self.rise[maker] += self.weights[buffer]
            if readers or self.stays[buffer]:
                self.makes[maker].append(buffer)

    def takeover(self, node: int) -> tuple[Takeover, ...]:
        """As in graphs, what is taken over has the size of something that the node makes."""
        for made in self.makes[node][:1]:
            nbytes = self.weights[made]
            same = tuple(b for b in self.reads[node] if self.weights[b] == nbytes > 0)
            if same and self.number(0, 1):
                return (Takeover(nbytes, same),)
        return ()

    def join(self, taken: set[int]) -> None:
        """Let operands of some nodes lie in their results, as those of Concats do.

        What may be taken over, and what is there from the start, lies in nothing else.
        """
        self.frees = list(self.weights)
        self.freed_with = list(range(len(self.weights)))
        made = {buffer for those in self.makes for buffer in those}
        for node in range(self.count):
            if self.makes[node] and self.number(0, 2) == 0:
                buffer = self.makes[node][0]
                loose = [
                    operand
                    for operand in self.reads[node]
                    if operand in made - taken and self.freed_with[operand] == operand
                ]
                if buffer not in taken and self.freed_with[buffer] == buffer:
                    self._put_inside(node, buffer, [b for b in loose if self.frees[b]])
        for part in range(len(self.weights)):
            while self.freed_with[self.freed_with[part]] != self.freed_with[part]:
                self.freed_with[part] = self.freed_with[self.freed_with[part]]

    def _put_inside(self, node: int, buffer: int, parts: list[int]) -> None:
        """The whole is as large as its parts at least; who reads one of them reads it."""
        inside = sum(self.frees[part] for part in parts)
        whole = max(self.weights[buffer], inside)
        self.rise[node] += whole - inside - self.weights[buffer]
        self.weights[buffer], self.frees[buffer] = whole - inside, whole
        for part in parts:
            self.frees[part], self.freed_with[part] = 0, buffer
            self.stays[buffer] = self.stays[buffer] or self.stays[part]
            for reader, read in enumerate(self.reads):
                if part in read:
                    read.remove(part)
                    if reader != node and buffer not in read:
                        read.append(buffer)


@st.composite
def problems(draw: DrawFn, most: int = 8, *, levels: bool = False) -> OrderingProblem:
    """A problem with buffers that several nodes read, some taken over, some that stay.

    Some lie in others, and disappear with them.
    """
    count = draw(st.integers(1, most))
    b = _Builder(draw, count)
    b.reads, b.makes = [[] for _ in range(count)], [[] for _ in range(count)]
    b.rise = [b.number(0, 2) for _ in range(count)]  # what is needed in the step alone
    for _ in range(b.number(0, 2)):
        b.add_buffer(None)
    initial = [i for i in range(len(b.weights)) if b.stays[i] or any(i in r for r in b.reads)]
    for node in range(count):
        for _ in range(b.number(0, 2)):
            b.add_buffer(node)
    for _ in range(b.number(0, 2) if count > 1 else 0):
        first = b.number(0, count - 2)
        b.edges.add((first, b.number(first + 1, count - 1)))
    takes = [b.takeover(node) for node in range(count)]
    b.join({buffer for those in takes for take in those for buffer in take.buffers})
    pairs = sorted(b.edges)
    return OrderingProblem(
        members=[(node,) for node in range(count)],
        successors=[[later for earlier, later in pairs if earlier == n] for n in range(count)],
        waiting=[sum(later == node for _, later in pairs) for node in range(count)],
        ranks=[b.number(0, 2) if levels else 0 for _ in range(count)],
        ties=[pair for pair in pairs if levels and b.number(0, 4) == 0],
        weights=b.weights,
        frees=b.frees,
        freed_with=b.freed_with,
        stays=b.stays,
        reads=[tuple(group) for group in b.reads],
        makes=[tuple(group) for group in b.makes],
        rise=b.rise,
        takes=takes,
        initial=tuple(initial),
        floor=sum(b.weights[buffer] for buffer in initial),
    )


def is_legal(problem: OrderingProblem, order: Sequence[int]) -> bool:
    """Whether ``order`` holds every node once, after all that it waits for."""
    place = {node: index for index, node in enumerate(order)}
    return sorted(order) == list(range(len(problem))) and all(
        place[node] < place[other]
        for node, others in enumerate(problem.successors)
        for other in others
    )


def naive_steps(problem: OrderingProblem, order: Sequence[int]) -> list[int]:
    """The bytes live in each step, counted from scratch each time."""
    return [_step(problem, frozenset(order[:index]), node) for index, node in enumerate(order)]


def _step(problem: OrderingProblem, done: frozenset[int], node: int) -> int:
    """The bytes live while ``node`` runs after ``done``."""
    readers = {
        buffer: {other for other, read in enumerate(problem.reads) if buffer in read}
        for buffer in range(len(problem.weights))
    }
    there = {*problem.initial, *(b for other in done for b in problem.makes[other])}
    live = problem.base
    for buffer in there:
        leader = problem.freed_with[buffer]
        if problem.stays[leader] or not readers[leader] <= done:
            live += problem.weights[buffer]
    for nbytes, buffers in problem.takes[node]:
        # What disappears with another buffer does not die by itself.
        alone = [b for b in buffers if problem.freed_with[b] == b and not problem.stays[b]]
        if any(readers[b] <= done | {node} for b in alone):
            live -= nbytes
    return live + problem.rise[node]


def all_orders(problem: OrderingProblem) -> Iterator[tuple[int, ...]]:
    """Every legal order."""

    def extend(order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(order) == len(problem):
            yield order
        for node in range(len(problem)):
            if node not in order and all(
                other in order for other, others in enumerate(problem.successors) if node in others
            ):
                yield from extend((*order, node))

    return extend(())


def lowest_peak(problem: OrderingProblem) -> int:
    """The lowest peak of any order, from all sets of nodes that may have run."""
    before = [
        {other for other, others in enumerate(problem.successors) if node in others}
        for node in range(len(problem))
    ]

    @cache
    def rest(done: frozenset[int]) -> int:
        ready = [n for n in range(len(problem)) if n not in done and before[n] <= done]
        return min(
            (max(_step(problem, done, node), rest(done | {node})) for node in ready), default=0
        )

    return max(problem.floor, rest(frozenset()))
