"""The queue of one model: requests become batches, in turn and within bounds.

Nothing here knows threads or clocks: whoever asks says what time it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from math import inf
from typing import Generic, TypeVar

__all__ = ["BatchQueue", "QueueEntry"]

_T = TypeVar("_T")


class QueueEntry(Generic[_T]):
    """A request that waits.

    Attributes:
        value: The request.
        key: Requests of equal keys may share a batch; ``None`` for a request that runs alone.
        size: The number of its samples.
        arrival, deadline: When it came, and when nobody waits for its answer any more; seconds.
    """

    __slots__ = ("arrival", "deadline", "group", "key", "size", "value")

    def __init__(
        self,
        value: _T,
        *,
        key: Hashable | None = None,
        size: int = 1,
        arrival: float = 0.0,
        deadline: float = inf,
    ) -> None:
        self.value = value
        self.key = key
        self.size = size
        self.arrival = arrival
        self.deadline = deadline
        # Who runs alone is a group of its own, which no key of another is equal to.
        self.group: Hashable = (0, id(self)) if key is None else (1, key)


class _Group(Generic[_T]):
    """Requests that may share a batch, in the order in which they came."""

    __slots__ = ("entries", "total")

    def __init__(self) -> None:
        self.entries: deque[QueueEntry[_T]] = deque()
        self.total = 0


class BatchQueue(Generic[_T]):
    """Requests that wait, and batches of those that fit together.

    A batch is due once it has ``limit`` samples, or its oldest request has waited ``max_wait``
    seconds.  Of the batches that are due that of the oldest request is first, so nobody starves,
    and requests of one key keep their order.
    """

    def __init__(self, *, limit: int = 1, max_wait: float = 0.0, max_queue: int = 256) -> None:
        self._limit = limit
        self._max_wait = max_wait
        self._max_queue = max_queue
        self._groups: dict[Hashable, _Group[_T]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def offer(self, entry: QueueEntry[_T]) -> bool:
        """Let a request wait; false if there is no room for it."""
        if self._count >= self._max_queue:
            return False
        group = self._groups.setdefault(entry.group, _Group())
        group.entries.append(entry)
        group.total += entry.size
        self._count += 1
        return True

    def remove(self, entry: QueueEntry[_T]) -> bool:
        """Forget a request; false if it does not wait any more."""
        group = self._groups.get(entry.group)
        if group is None or entry not in group.entries:
            return False
        group.entries.remove(entry)
        self._left(entry.group, group, entry.size, 1)
        return True

    def expired(self, now: float) -> list[QueueEntry[_T]]:
        """Take out the requests whose deadline has passed."""
        found = [
            entry
            for group in self._groups.values()
            for entry in group.entries
            if entry.deadline <= now
        ]
        for entry in found:
            self.remove(entry)
        return found

    def take(self, now: float) -> list[QueueEntry[_T]]:
        """Take out the next batch that is due; empty if there is none."""
        due = [group for group in self._groups.values() if self._due_at(group) <= now]
        if not due:
            return []
        group = min(due, key=lambda each: each.entries[0].arrival)
        batch: list[QueueEntry[_T]] = []
        total = 0
        while group.entries and (not batch or total + group.entries[0].size <= self._limit):
            batch.append(group.entries.popleft())
            total += batch[-1].size
        self._left(batch[0].group, group, total, len(batch))
        return batch

    def due_at(self) -> float:
        """The time at which the next batch is due, or a request expires; infinity if none waits."""
        return min(self._times(), default=inf)

    def _times(self) -> Iterator[float]:
        for group in self._groups.values():
            yield self._due_at(group)
            yield min(entry.deadline for entry in group.entries)

    def _due_at(self, group: _Group[_T]) -> float:
        first = group.entries[0]
        waits = first.key is not None and group.total < self._limit
        return first.arrival + self._max_wait if waits else first.arrival

    def _left(self, name: Hashable, group: _Group[_T], size: int, count: int) -> None:
        """Account for requests that have left a group."""
        group.total -= size
        self._count -= count
        if not group.entries:
            del self._groups[name]
