"""PopART's ways to group updates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popc.optimizers.grouping import (
    Group,
    UpdateFacts,
    WeightPiece,
    check_groups,
    merge_all,
    merge_loose,
    merge_tight,
)

_UPDATES = st.lists(
    st.builds(
        UpdateFacts,
        elements=st.integers(1, 40),
        itemsize=st.just(4),
        partition=st.integers(0, 2),
        position=st.integers(-1, 9),
    ),
    max_size=12,
).map(lambda updates: sorted(updates, key=lambda piece: piece.position))


@given(_UPDATES)
def test_all(updates: list[UpdateFacts]) -> None:
    groups = merge_all(updates)
    assert check_groups(updates, groups) == []
    assert len(groups) == len({update.partition for update in updates})


@given(_UPDATES, st.integers(1, 200))
def test_tight(updates: list[UpdateFacts], threshold: int) -> None:
    groups = merge_tight(updates, threshold)
    assert check_groups(updates, groups, max(threshold, 4)) == []
    full = [group for group in groups if _bytes(updates, group) > threshold - 4]
    assert len(groups) - len(full) <= len({update.partition for update in updates})


def _bytes(updates: list[UpdateFacts], group: Group) -> int:
    return sum((end - start) * updates[index].itemsize for index, start, end in group)


@given(_UPDATES, st.integers(1, 400), st.lists(st.integers(0, 400), min_size=10, max_size=10))
def test_loose(updates: list[UpdateFacts], threshold: int, slack: list[int]) -> None:
    groups = merge_loose(updates, threshold, slack)
    assert check_groups(updates, groups) == []
    whole = {update.partition for update in updates}
    if len(whole) < len(updates):
        for group in groups:
            before = updates[max(piece.update for piece in group)]
            largest = before.nbytes + threshold
            assert _bytes(updates, group) <= largest


def test_loose_waits_where_memory_is_free() -> None:
    """The third gradient has to wait where memory is tight, so the first two are used up."""
    updates = [UpdateFacts(10, 4, 0, position) for position in range(4)]
    slack = [100, 100, 100, 0]
    groups = merge_loose(updates, 1000, slack)
    assert [len(group) for group in groups] == [3, 1]
    assert [len(group) for group in merge_loose(updates, 50, [100] * 4)] == [2, 2]


def test_the_largest_partition_goes_first() -> None:
    updates = [
        UpdateFacts(10, 4, 0, 0),
        UpdateFacts(10, 4, 1, 1),
        UpdateFacts(5, 4, 0, 2),
        UpdateFacts(1, 4, 1, 3),
    ]
    groups = merge_loose(updates, 90, [1000] * 4)
    assert [[piece.update for piece in group] for group in groups] == [[0, 2], [1, 3]]


def test_tight_cuts_weights() -> None:
    updates = [UpdateFacts(6, 4, 0), UpdateFacts(9, 4, 0), UpdateFacts(3, 4, 1)]
    assert merge_tight(updates, 40) == [
        ((0, 0, 6), (1, 0, 4)),
        ((1, 4, 9),),
        ((2, 0, 3),),
    ]
    with pytest.raises(ValueError, match="more than 10,000 groups"):
        merge_tight([UpdateFacts(1 << 20, 4, 0)], 4)


def test_the_checker_sees_mistakes() -> None:
    updates = [UpdateFacts(4, 4, 0), UpdateFacts(4, 4, 1)]
    wrong = [(WeightPiece(0, 0, 4), WeightPiece(1, 0, 3)), (WeightPiece(1, 2, 4),)]
    problems = check_groups(updates, wrong, 16)
    assert problems == [
        "group 0 is of several partitions",
        "group 0 has 28 bytes, which is more than 16",
        "elements of update 1 are updated [1, 2] times",
    ]
