"""Questions about paths, answered for many nodes at once by sets of bits.

Sets have a limited number of bits, and as many passes are made as it takes: memory grows with the
number of nodes, not with its square.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final, TypeVar

from popc.schedule.flat import find_native, lists_of

__all__ = ["find_followed", "reduce_by_definition", "reduce_edges"]

# Marks that are looked at together, as bits of one int, so that memory stays linear.
_BITS: Final = 4096
_Node = TypeVar("_Node", bound=Hashable)


def find_followed(
    order: Sequence[_Node],
    successors: Mapping[_Node, Iterable[_Node]],
    marks: Mapping[_Node, Iterable[int]],
    asked: Mapping[_Node, Iterable[int]],
) -> set[tuple[_Node, int]]:
    """The pairs of a node and one of the marks ``asked`` for it that a node after it has.

    ``order`` holds all nodes, those that others follow first.  What cannot be is left out at once:
    whoever follows has a longer way from the start.  Questions about nodes close to each other are
    answered together, by a walk from the last to the first of them.
    """
    if not asked:
        return set()
    place = {node: index for index, node in enumerate(order)}
    depth = _find_depths(order, successors)
    holders: dict[int, list[tuple[int, int]]] = {m: [] for those in asked.values() for m in those}
    for node, those in marks.items():
        for mark in those:
            if mark in holders:
                holders[mark].append((depth[node], place[node]))
    lasts = {mark: _lasts(found) for mark, found in holders.items()}
    questions: list[tuple[int, int, _Node, int]] = []  # places of the first and last, node, mark
    for node, those in asked.items():
        for mark in those:
            depths, last = lasts[mark]
            index = bisect_right(depths, depth[node])
            if index < len(depths):
                questions.append((place[node], last[index], node, mark))
    questions.sort(key=lambda question: question[:2])
    found: set[tuple[_Node, int]] = set()
    for low in range(0, len(questions), _BITS):
        part = questions[low : low + _BITS]
        bits = {mark: 1 << bit for bit, mark in enumerate({mark: 0 for *_, mark in part})}
        region = order[part[0][0] : max(last for _, last, *_ in part) + 1]
        found |= _answer(region, successors, marks, part, bits)
    return found


def _lasts(holders: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """The depths of nodes, sorted, and for each the last place of it and of those behind it."""
    holders.sort()
    places = accumulate((place for _, place in reversed(holders)), max)
    return [depth for depth, _ in holders], list(places)[::-1]


def _answer(
    region: Sequence[_Node],
    successors: Mapping[_Node, Iterable[_Node]],
    marks: Mapping[_Node, Iterable[int]],
    questions: Sequence[tuple[int, int, _Node, int]],
    bits: Mapping[int, int],
) -> set[tuple[_Node, int]]:
    """The questions whose answer is yes; no node behind the region has one of the marks asked."""
    asked: dict[_Node, int] = {}
    for *_, node, mark in questions:
        asked[node] = asked.get(node, 0) | bits[mark]
    held: dict[_Node, int] = {}  # marks of a node and of those after it
    yes: dict[_Node, int] = {}
    for node in reversed(region):
        after = 0
        for later in successors[node]:
            after |= held.get(later, 0)
        yes[node] = after & asked.get(node, 0)
        for mark in marks.get(node, ()):
            after |= bits.get(mark, 0)
        held[node] = after
    return {(node, mark) for *_, node, mark in questions if yes[node] & bits[mark]}


def _find_depths(
    order: Sequence[_Node], successors: Mapping[_Node, Iterable[_Node]]
) -> dict[_Node, int]:
    """For each node the links of the longest way to it."""
    depths = dict.fromkeys(order, 0)
    for node in order:
        below = depths[node] + 1
        for later in successors[node]:
            depths[later] = max(depths[later], below)
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
