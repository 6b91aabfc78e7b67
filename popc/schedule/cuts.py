"""Parts of an order that can be improved by themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from popc.schedule.problem import OrderingProblem, Takeover

__all__ = ["find_cuts", "restrict"]

_Relations = tuple[list[list[int]], dict[int, list[int]], list[int]]


def find_cuts(problem: OrderingProblem, order: Sequence[int]) -> list[int]:
    """Places of nodes that run at the same place in every order, and nothing across them moves.

    Such a node waits, directly or not, for all that come before it, and all after it wait for it.
    """
    count = len(order)
    places = np.arange(count)
    place = np.empty_like(places)
    place[np.array(order, np.int64)] = places
    links = list(map(len, problem.successors))
    here = np.repeat(place, links)
    there = place[np.fromiter(chain.from_iterable(problem.successors), np.int64, len(here))]
    first_later = np.full(count, count)  # by place: the first successor
    np.minimum.at(first_later, here, there)
    last_earlier = np.full(count, -1)  # by place: the last predecessor
    np.maximum.at(last_earlier, there, here)
    before = np.maximum.accumulate(np.append(0, first_later))[:-1]
    after = np.minimum.accumulate(np.append(count, last_earlier[::-1]))[-2::-1]
    cuts: list[int] = np.flatnonzero((before <= places) & (places <= after)).tolist()
    return cuts


def restrict(
    problem: OrderingProblem, order: Sequence[int], steps: Sequence[int], low: int, high: int
) -> OrderingProblem:
    """The problem of ordering what ``order`` has from place ``low`` to ``high``, all else fixed.

    Its nodes are numbered in the given order, of which ``steps`` are the bytes live in each step.
    What it takes grows with the part, but for finding the places of nodes.
    """
    place = [0] * len(order)
    for index, node in enumerate(order):
        place[node] = index
    readers, parts, makers = problem.remembered("relations", _relations)

    def last(buffer: int) -> int:
        return max((place[node] for node in readers[buffer]), default=-1)

    def is_there(buffer: int) -> bool:
        return makers[buffer] < 0 or place[makers[buffer]] < low

    inside = order[low:high]
    read = dict.fromkeys(chain.from_iterable(problem.reads[node] for node in inside))
    dying = [b for b in read if not problem.stays[b] and last(b) < high]
    mortal = [part for b in dying for part in parts.get(b, ()) if is_there(part)]
    taken = sum(
        take.nbytes
        for take in problem.takes[order[low]]
        if any(not problem.stays[b] and last(b) == low for b in take.buffers)
    )
    live = steps[low] - problem.rise[order[low]] + taken
    return _extract(problem, inside, mortal, live, lambda b: problem.stays[b] or last(b) >= high)


def _relations(problem: OrderingProblem) -> _Relations:
    """The readers of each buffer, what is freed with it, and who makes it.

    What nobody makes is there from the start, if at all.
    """
    readers: list[list[int]] = [[] for _ in problem.weights]
    makers = [-1] * len(problem.weights)
    for node, (read, made) in enumerate(zip(problem.reads, problem.makes, strict=True)):
        for buffer in read:
            readers[buffer].append(node)
        for buffer in made:
            makers[buffer] = node
    return readers, problem.freed_together(), makers


def _extract(
    problem: OrderingProblem,
    inside: Sequence[int],
    mortal: Sequence[int],
    live: int,
    stays: Callable[[int], bool],
) -> OrderingProblem:
    """The problem of the nodes ``inside``, before which ``live`` bytes and ``mortal`` are live."""
    numbers = {node: number for number, node in enumerate(inside)}
    leaders = problem.freed_with
    makes = [problem.makes[node] for node in inside]
    reads = [problem.reads[node] for node in inside]
    takes = [problem.takes[node] for node in inside]
    choices = [b for take in chain(*takes) for b in take.buffers]
    used = dict.fromkeys(chain(mortal, choices, *makes, *reads))
    buffers = {b: number for number, b in enumerate(used | {leaders[b]: None for b in used})}
    successors = [
        [numbers[other] for other in problem.successors[node] if other in numbers]
        for node in inside
    ]
    waits = Counter(chain(*successors))
    return OrderingProblem(
        members=[problem.members[node] for node in inside],
        successors=successors,
        waiting=[waits[node] for node in range(len(inside))],
        ranks=[problem.ranks[node] for node in inside],
        ties=[(numbers[a], numbers[b]) for a, b in problem.ties if a in numbers and b in numbers],
        weights=[problem.weights[b] for b in buffers],
        frees=[problem.frees[b] for b in buffers],
        freed_with=[buffers[leaders[b]] for b in buffers],
        stays=[stays(b) for b in buffers],
        reads=[tuple(buffers[b] for b in read) for read in reads],
        makes=[tuple(buffers[b] for b in made) for made in makes],
        rise=[problem.rise[node] for node in inside],
        takes=[
            tuple(Takeover(nbytes, tuple(buffers[b] for b in chosen)) for nbytes, chosen in taken)
            for taken in takes
        ],
        initial=tuple(buffers[b] for b in mortal),
        floor=live,
        base=live - sum(problem.weights[buffer] for buffer in mortal),
    )
