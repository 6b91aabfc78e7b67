"""Questions about paths, answered for many nodes at once by sets of bits.

Sets have a limited number of bits, and as many passes are made as it takes: memory grows with the
number of nodes, not with its square.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

__all__ = ["find_followed", "reduce_edges"]

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

    ``order`` holds all nodes, those that others follow first.
    """
    wanted = sorted({mark for those in asked.values() for mark in those})
    found: set[tuple[_Node, int]] = set()
    for low in range(0, len(wanted), _BITS):
        bits = {mark: 1 << bit for bit, mark in enumerate(wanted[low : low + _BITS])}
        held: dict[_Node, int] = {}  # marks of a node and of those after it
        for node in reversed(order):
            after = 0
            for later in successors[node]:
                after |= held[later]
            found.update((node, m) for m in asked.get(node, ()) if after & bits.get(m, 0))
            for mark in marks.get(node, ()):
                after |= bits.get(mark, 0)
            held[node] = after
    return found


def reduce_edges(order: Sequence[int], successors: Sequence[Iterable[int]]) -> list[list[int]]:
    """``successors`` without the edges that follow from others (transitive reduction)."""
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
