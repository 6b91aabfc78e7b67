"""The queue, with a clock of its own: nothing is lost, late, too large or out of turn."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popc_runtime.serving.batching import BatchQueue, QueueEntry

# A request: seconds after the one before, key (None: alone), samples, time-out.
_REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([None, "a", "b"]),
        st.integers(1, 6),
        st.sampled_from([inf, 2, 5]),
    ),
    max_size=30,
)


def _taken(queue: BatchQueue[int], now: float) -> list[list[int]]:
    """The batches that are due."""
    batches: list[list[int]] = []
    while batch := queue.take(now):
        batches.append([entry.value for entry in batch])
    return batches


@given(_REQUESTS, st.integers(1, 8), st.integers(0, 4), st.integers(1, 12))
def test_every_request_leaves_once_in_time_and_in_turn(
    requests: list[tuple[int, str | None, int, float]], limit: int, wait: int, room: int
) -> None:
    queue: BatchQueue[int] = BatchQueue(limit=limit, max_wait=wait, max_queue=room)
    entries: dict[int, QueueEntry[int]] = {}
    left: list[int] = []
    now = 0.0

    def advance(until: float) -> None:
        """Let time pass, from event to event, as the queue announces them."""
        nonlocal now
        while (due := queue.due_at()) <= until:
            now = max(now, due)
            for entry in queue.expired(now):
                assert entry.deadline <= now
                left.append(entry.value)
            while batch := queue.take(now):
                assert len({entry.group for entry in batch}) == 1
                assert len(batch) == 1 or sum(entry.size for entry in batch) <= limit
                assert all(now - entry.arrival <= wait for entry in batch)
                left.extend(entry.value for entry in batch)
        now = until

    for number, (later, key, size, patience) in enumerate(requests):
        advance(now + later)
        entry = QueueEntry(number, key=key, size=size, arrival=now, deadline=now + patience)
        before = len(queue)
        assert queue.offer(entry) == (before < room)
        if before < room:
            entries[number] = entry
        assert len(queue) <= room
    advance(now + wait)
    assert sorted(left) == sorted(entries)
    assert queue.due_at() == inf
    assert len(queue) == 0
    for key in ("a", "b"):  # requests of a key keep their order, but for those that expired
        ours = [each for each in left if entries[each].key == key and entries[each].deadline == inf]
        assert ours == sorted(ours)


def test_a_batch_is_due_when_it_is_full() -> None:
    queue: BatchQueue[int] = BatchQueue(limit=4, max_wait=10)
    for number, size in enumerate((2, 1)):
        queue.offer(QueueEntry(number, key="a", size=size))
    assert _taken(queue, 9) == []
    queue.offer(QueueEntry(2, key="a", size=2, arrival=9))  # with it there are more than four
    assert _taken(queue, 9) == [[0, 1]]
    assert queue.due_at() == 19
    assert _taken(queue, 19) == [[2]]


def test_a_full_batch_does_not_wait_for_an_older_one() -> None:
    queue: BatchQueue[int] = BatchQueue(limit=2, max_wait=10)
    queue.offer(QueueEntry(0, key="a"))
    queue.offer(QueueEntry(1, key="b", arrival=1))
    queue.offer(QueueEntry(2, key="b", arrival=2))
    queue.offer(QueueEntry(3, arrival=3))
    assert _taken(queue, 3) == [[1, 2], [3]]
    assert _taken(queue, 10) == [[0]]


@pytest.mark.parametrize("key", [None, "a"])
def test_what_is_forgotten_makes_room(key: str | None) -> None:
    queue: BatchQueue[int] = BatchQueue(limit=4, max_wait=1, max_queue=1)
    first = QueueEntry(0, key=key)
    assert queue.offer(first)
    assert not queue.offer(QueueEntry(1))
    assert queue.remove(first)
    assert not queue.remove(first)
    assert queue.offer(QueueEntry(1))
