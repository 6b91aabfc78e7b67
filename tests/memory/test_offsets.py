from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc.memory.offsets import BufferOffsets, pack
from tests.support.work import counted_calls

_BUFFERS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(1, 9)))


@settings(deadline=None, max_examples=200)
@given(_BUFFERS)
def test_buffers_alive_together_lie_apart(buffers: list[tuple[int, int, int]]) -> None:
    lives = [(first, first + length, 64 * size) for first, length, size in buffers]
    packing = pack([b[0] for b in lives], [b[1] for b in lives], [b[2] for b in lives])
    placed = list(zip(lives, packing.offsets, strict=True))
    for index, ((first, last, size), offset) in enumerate(placed):
        assert offset >= 0
        assert offset % 64 == 0
        assert offset + size <= packing.height
        for (other_first, other_last, other_size), other in placed[:index]:
            together = first <= other_last and other_first <= last
            assert not together or offset + size <= other or other + other_size <= offset
    ticks = range(50)
    alive = [sum(size for first, last, size in lives if first <= t <= last) for t in ticks]
    assert packing.bound == max(alive)
    assert packing.bound <= packing.height <= sum(size for _, _, size in lives)


def test_nothing_needs_nothing() -> None:
    assert pack([], [], []) == BufferOffsets((), 0, 0)


def test_gaps_are_found_between_what_lives_long() -> None:
    # 0 and 2 live throughout, 1 dies; 3 fits between them, 4 does not
    packing = pack([0, 0, 0, 5, 5], [9, 3, 9, 9, 9], [64, 128, 64, 128, 192])
    assert packing.height == packing.bound == 448


def test_a_better_order_is_found_than_that_of_time() -> None:
    # as time goes by, 1 is put above 0 and keeps 2 from using both places
    packing = pack([0, 1, 4], [2, 5, 6], [128, 64, 192])
    assert packing.height == packing.bound == 256


def test_what_ends_too_high_is_placed_earlier() -> None:
    # one place is free again when 1 comes, and it must not take a part of what 0 and 2 need
    packing = pack([5, 4, 5, 1], [6, 5, 6, 4], [128, 128, 128, 192])
    assert packing.height == packing.bound == 384


@pytest.mark.parametrize("length", [5, 50, 10_000])
def test_twenty_thousand_buffers_are_no_burden(length: int) -> None:
    """A few calls for each buffer, however many are alive together."""
    rng = np.random.default_rng(0)
    count = 20_000
    first = rng.integers(0, count, count)
    last = first + rng.geometric(1 / length, count)
    sizes = 64 * rng.integers(1, 1000, count)
    with counted_calls() as calls:
        packing = pack(first.tolist(), last.tolist(), sizes.tolist())
    assert calls() < 100 * count
    assert packing.height < 1.3 * packing.bound
