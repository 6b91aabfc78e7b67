"""The updates of weights that are made together: PopART's three ways to group them.

All take updates in the order in which their gradients become known, and return groups of pieces:
ranges of elements of weights.  Groups hold updates of one partition only, those whose arithmetic
is the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

__all__ = [
    "Group",
    "UpdateFacts",
    "WeightPiece",
    "check_groups",
    "merge_all",
    "merge_loose",
    "merge_tight",
]

_MOST_GROUPS: Final = 10_000  # more are refused


class UpdateFacts(NamedTuple):
    """The facts about one update that grouping needs.

    Attributes:
        elements, itemsize: Of the weight.
        partition: Updates with equal numbers can be merged.
        position: When its gradient is known: the number of an op in the order of execution.
    """

    elements: int
    itemsize: int
    partition: int
    position: int = 0

    @property
    def nbytes(self) -> int:
        """The size of the weight."""
        return self.elements * self.itemsize


class WeightPiece(NamedTuple):
    """Elements ``start`` to ``end`` of the weight of update ``update``."""

    update: int
    start: int
    end: int


Group: TypeAlias = tuple[WeightPiece, ...]


def merge_all(updates: Sequence[UpdateFacts]) -> list[Group]:
    """Each partition as a whole."""
    return [
        tuple(WeightPiece(index, 0, updates[index].elements) for index in members)
        for members in _partitions(updates).values()
    ]


def _partitions(updates: Sequence[UpdateFacts]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for index, update in enumerate(updates):
        found[update.partition].append(index)
    return found


def merge_tight(updates: Sequence[UpdateFacts], threshold: int) -> list[Group]:
    """Groups of ``threshold`` bytes, for which weights are cut; a last one takes what is left.

    Raises:
        ValueError: that would be very many groups.
    """
    total = sum(update.nbytes for update in updates)
    if total > _MOST_GROUPS * max(threshold, 1):
        raise ValueError(
            f"{threshold:,} bytes make more than {_MOST_GROUPS:,} groups of {total:,} bytes"
        )
    groups: list[Group] = []
    pending: dict[int, list[WeightPiece]] = defaultdict(list)
    for index, update in enumerate(updates):
        room = max(threshold // update.itemsize, 1)
        row, done = pending[update.partition], 0
        while done < update.elements:
            free = room - sum(piece.end - piece.start for piece in row)
            end = min(update.elements, done + free)
            row.append(WeightPiece(index, done, end))
            if end - done == free:
                groups.append(tuple(row))
                row.clear()
            done = end
    return [*groups, *(tuple(row) for row in pending.values() if row)]


def merge_loose(
    updates: Sequence[UpdateFacts], threshold: int, slack: Sequence[int]
) -> list[Group]:
    """Whole weights, as many together as fit into memory that is free anyway.

    ``slack[i]`` is how many bytes gradients may wait in while op i runs.  What waits is updated
    when it would exceed that or ``threshold``: of all partitions the one with the most bytes.
    """
    if all(len(members) < 2 for members in _partitions(updates).values()):
        return merge_all(updates)
    groups: list[Group] = []
    pending: dict[int, list[WeightPiece]] = defaultdict(list)
    waiting: dict[int, int] = defaultdict(int)
    for index, update in enumerate(updates):
        pending[update.partition].append(WeightPiece(index, 0, update.elements))
        waiting[update.partition] += update.nbytes
        room = _least_slack(updates, index, slack)
        while pending and sum(waiting.values()) > min(room, threshold):
            largest = max(pending, key=lambda candidate: (waiting[candidate], candidate))
            groups.append(tuple(pending.pop(largest)))
            del waiting[largest]
    return [*groups, *map(tuple, pending.values())]


def _least_slack(updates: Sequence[UpdateFacts], index: int, slack: Sequence[int]) -> int:
    """The slack until the next gradient is known; none after the last."""
    if index + 1 == len(updates):
        return 0
    first = max(updates[index].position, 0)
    last = max(updates[index + 1].position, first + 1)
    return min(slack[first:last], default=0)


def check_groups(
    updates: Sequence[UpdateFacts], groups: Sequence[Group], most: int | None = None
) -> list[str]:
    """The problems of groups, by counting every element; ``most``: bytes of a group."""
    return list(_problems(updates, groups, most))


def _problems(
    updates: Sequence[UpdateFacts], groups: Sequence[Group], most: int | None
) -> Iterator[str]:
    times = [[0] * update.elements for update in updates]
    for number, group in enumerate(groups):
        for piece in group:
            for element in range(piece.start, piece.end):
                times[piece.update][element] += 1
        if len({updates[piece.update].partition for piece in group}) != 1:
            yield f"group {number} is of several partitions"
        nbytes = sum((p.end - p.start) * updates[p.update].itemsize for p in group)
        if most is not None and nbytes > most:
            yield f"group {number} has {nbytes} bytes, which is more than {most}"
    for index, counts in enumerate(times):
        if any(count != 1 for count in counts):
            yield f"elements of update {index} are updated {sorted(set(counts))} times"
