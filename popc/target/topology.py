"""The links between chips, and the order in which a program counts them.

The ladder: chips 2k and 2k + 1 form a rung, and rungs are linked to their neighbours along both
rails.  Selection orders are those of TensorFlow for the IPU.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["SelectionOrder", "Topology", "hops", "linked", "select_ipus", "sync_hops"]


class Topology(StrEnum):
    """The pattern of links between chips."""

    NONE = "none"
    LADDER = "ladder"


class SelectionOrder(StrEnum):
    """In which order a program counts chips."""

    AUTO = "auto"  # hoof if the last chip sends to the first one, else snake
    ZIGZAG = "zigzag"  # rung by rung, from left to right
    SNAKE = "snake"  # rung by rung, so that neighbours are linked
    HOOF = "hoof"  # up one rail, down the other: first and last are linked too


def select_ipus(count: int, order: SelectionOrder, *, closed: bool = False) -> tuple[int, ...]:
    """The numbers of ``count`` chips of a ladder in ``order``.

    Args:
        count: 1, or an even number of chips.
        order: How to walk along the ladder.
        closed: For AUTO: whether the last chip sends to the first one.
    """
    if order is SelectionOrder.AUTO:
        order = SelectionOrder.HOOF if closed else SelectionOrder.SNAKE
    chips = range(count)
    if order is SelectionOrder.ZIGZAG:
        return tuple(chips)
    if order is SelectionOrder.HOOF:
        return (*chips[::2], *reversed(chips[1::2]))
    rungs = [chips[first : first + 2] for first in range(0, count, 2)]
    turned = [rung[::-1] if number % 2 else rung for number, rung in enumerate(rungs)]
    return tuple(chip for rung in turned for chip in rung)


def linked(first: int, second: int) -> bool:
    """True if two different chips of a ladder have a link of their own."""
    return hops(first, second) == 1


def hops(first: int, second: int) -> int:
    """Links between two chips of a ladder."""
    return abs(first // 2 - second // 2) + (first % 2 != second % 2)


def sync_hops(count: int) -> int:
    """Links that a sync of ``count`` chips crosses, one way (poplibs' test utilities)."""
    return 1 + count // 2 // 2
