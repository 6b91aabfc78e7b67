"""Questions about paths, answered for many nodes at once by sets of bits.

Sets have a limited number of bits, and as many passes are made as it takes: memory grows with the
number of nodes, not with its square.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final

from popc.schedule.flat import find_native, lists_of

__all__ = ["find_followed", "reduce_by_definition", "reduce_edges"]

# Marks that are looked at together, as bits of one int, so that memory stays linear.
_BITS: Final = 4096
_NEAR: Final = 32  # nodes behind one that are looked at by themselves


def find_followed(
    order: Sequence[int],
    successors: Sequence[Iterable[int]],
    holders: Mapping[int, Collection[int]],
    asked: Mapping[int, Iterable[int]],
) -> set[tuple[int, int]]:
    """The pairs of a node and one of the marks ``asked`` for it that a node after it has.

    ``order`` holds all nodes, those that others follow first; ``holders`` gives the nodes that have
    a mark.  What cannot be is left out at once: whoever follows has a longer way from the start.
    Questions about nodes close to each other are answered together, by a walk from the last to the
    first of them.
    """
    if not asked:
        return set()
    depth = _find_depths(order, successors)
    found: set[tuple[int, int]] = set()
    left: list[tuple[int, int]] = []
    deepest: dict[int, int] = {}
    for node, marks in asked.items():
        for mark in marks:
            if mark not in deepest:
                deepest[mark] = max([depth[other] for other in holders[mark]], default=0)
            if deepest[mark] > depth[node]:
                is_followed = _look_near(node, successors, holders[mark], depth, deepest[mark])
                if is_followed is None:
                    left.append((node, mark))
                elif is_followed:
                    found.add((node, mark))
    return found | _answer_all(order, successors, holders, depth, left)


def _look_near(
    node: int,
    successors: Sequence[Iterable[int]],
    wanted: Collection[int],
    depth: Sequence[int],
    deepest: int,
) -> bool | None:
    """True if one of the nodes ``wanted`` is behind ``node``; ``None`` if that takes long to tell.

    None of them is behind one as deep as the deepest.
    """
    near = [node]
    for each in near:  # grows while it is walked
        for later in successors[each]:
            if later in wanted:
                return True
            if depth[later] < deepest:
                near.append(later)
        if len(near) > _NEAR:
            return None
    return False


def _answer_all(
    order: Sequence[int],
    successors: Sequence[Iterable[int]],
    holders: Mapping[int, Collection[int]],
    depth: Sequence[int],
    pairs: Sequence[tuple[int, int]],
) -> set[tuple[int, int]]:
    """The ``pairs`` of a node and a mark that a node after it has."""
    if not pairs:
        return set()
    place = [0] * len(order)
    for index, node in enumerate(order):
        place[node] = index
    lasts = {
        mark: _lasts([(depth[node], place[node]) for node in holders[mark]])
        for mark in dict.fromkeys(mark for _, mark in pairs)
    }
    questions: list[tuple[int, int, int, int]] = []  # places of the first and last, node, mark
    for node, mark in pairs:
        depths, last = lasts[mark]
        questions.append((place[node], last[bisect_right(depths, depth[node])], node, mark))
    questions.sort(key=lambda question: question[:2])
    found: set[tuple[int, int]] = set()
    for low in range(0, len(questions), _BITS):
        part = questions[low : low + _BITS]
        region = order[part[0][0] : max(last for _, last, *_ in part) + 1]
        found |= _answer(region, successors, holders, part)
    return found


def _lasts(holders: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """The depths of nodes, sorted, and for each the last place of it and of those behind it."""
    holders.sort()
    places = accumulate((place for _, place in reversed(holders)), max)
    return [depth for depth, _ in holders], list(places)[::-1]


def _answer(
    region: Sequence[int],
    successors: Sequence[Iterable[int]],
    holders: Mapping[int, Iterable[int]],
    questions: Sequence[tuple[int, int, int, int]],
) -> set[tuple[int, int]]:
    """The questions whose answer is yes; no node behind the region has one of the marks asked."""
    bits = {mark: 1 << bit for bit, mark in enumerate({mark: 0 for *_, mark in questions})}
    marks: dict[int, int] = {}  # of nodes
    for mark, bit in bits.items():
        for node in holders[mark]:
            marks[node] = marks.get(node, 0) | bit
    asked: dict[int, int] = {}
    for *_, node, mark in questions:
        asked[node] = asked.get(node, 0) | bits[mark]
    held: dict[int, int] = {}  # marks of a node and of those after it
    yes: dict[int, int] = {}
    for node in reversed(region):
        after = 0
        for later in successors[node]:
            after |= held.get(later, 0)
        if node in asked:
            yes[node] = after & asked[node]
        held[node] = after | marks.get(node, 0)
    return {(node, mark) for *_, node, mark in questions if yes[node] & bits[mark]}


def _find_depths(order: Sequence[int], successors: Sequence[Iterable[int]]) -> list[int]:
    """For each node the links of the longest way to it."""
    depths = [0] * len(order)
    for node in order:
        below = depths[node] + 1
        for later in successors[node]:
            if depths[later] < below:  # noqa: PLR1730 - a call takes three times as long
                depths[later] = below
    return depths


def reduce_edges(order: Sequence[int], successors: Sequence[Sequence[int]]) -> list[list[int]]:
    """``successors`` without the edges that follow from others (transitive reduction).

    Those of a node are in the order in which they stand in ``order``, which holds all nodes.
    """
    native = find_native()
    if native is None:
        return reduce_by_definition(order, successors)
    starts, items = lists_of(successors)
    native.reduce_links(starts[:], items[:], array("q", order), starts, items)
    kept = items.tolist()
    return [kept[low:high] for low, high in pairwise(starts)]


def reduce_by_definition(
    order: Sequence[int], successors: Sequence[Sequence[int]]
) -> list[list[int]]:
    """The definition of `reduce_edges`, in Python."""
    place = [0] * len(order)
    for index, node in enumerate(order):
        place[node] = index
    edges = [sorted(set(later), key=place.__getitem__) for later in successors]
    kept: list[list[int]] = [[] for _ in edges]
    for low in range(0, len(order), _BITS):
        high = low + _BITS
        reached = [0] * len(order)
        for node in reversed(order[:high]):
            bits = 0
            for later in edges[node]:
                index = place[later]
                if index >= high:
                    break
                if index < low:
                    bits |= reached[later]
                elif not bits >> (index - low) & 1:  # no path by way of an earlier successor
                    kept[node].append(later)
                    bits |= 1 << (index - low) | reached[later]
            reached[node] = bits
    return kept
