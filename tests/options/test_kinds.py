"""Kinds of values by themselves: what they read, and what they say of what they do not read."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popc.options.kinds import (
    Choice,
    Kind,
    Names,
    Number,
    Patterns,
    Several,
    Table,
    Text,
    Truth,
    Whole,
)


class Fruit(StrEnum):
    """Something to choose from."""

    APPLE = "apple"
    SOUR_CHERRY = "sour_cherry"


_FRUITS = Choice(*Fruit, synonyms={"amarena": Fruit.SOUR_CHERRY})
_COUNTS = Table(Whole(high=9), "from fruits to counts", keys=tuple(Fruit), example="apple=3")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Truth(), "Yes", True),
        (Truth(numbers=True), 0, False),
        (Whole(low=-3), " -3 ", -3),
        (Number(low=-1), "1e0", 1.0),
        (Text(), " a b ", "a b"),
        (Choice("greedy", "fifo"), "FIFO", "fifo"),
        (_FRUITS, "SourCherry", Fruit.SOUR_CHERRY),
        (_FRUITS, "Amarena", Fruit.SOUR_CHERRY),
        (Names(("a", "b")), "b,a,b", ("a", "b")),
        (Names(("a", "b")), "B,a", ("a", "b")),
        (Names(("a", "A")), "A", ("A",)),
        (Patterns(), "b*,a,b*", ("b*", "a")),
        (Several(Whole()), "3, 1", (3, 1)),
        (_COUNTS, "sour_cherry=2,apple=1", {"apple": 1, "sour_cherry": 2}),
        (Table(_FRUITS, "from names to fruits"), {"x": "apple"}, {"x": Fruit.APPLE}),
    ],
)
def test_what_is_read(kind: Kind[Any], value: object, expected: object) -> None:
    found = kind.parse(value)
    assert found == expected
    assert type(found) is type(expected) or isinstance(expected, dict)
    assert kind.parse(found) == found


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (Truth(), 1, "is 1, but must be true or false"),
        (Truth(numbers=True), 2, "is 2, but must be true or false"),
        (Whole(), True, "is True, but must be a whole number"),
        (Whole(), 1.0, "is 1.0, but must be a whole number"),
        (Whole(low=1), "0", "is 0, but must be at least 1"),
        (Whole(high=9), 10, "is 10, but must be at most 9"),
        (Number(high=1), "nan", "is nan, but must be from 0 to 1"),
        (Number(), "x", "is 'x', but must be a number"),
        (Text(), " ", "is ' ', but must be text"),
        (_FRUITS, "pear", "is 'pear', but must be one of apple, sour_cherry"),
        (Names(("apple",)), "aple", "contains 'aple', which does not exist: did you mean apple?"),
        (Patterns(), 3, "is 3, but must be a list of names or patterns"),
        (Several(Whole()), "1,x", "is 'x', but must be a whole number"),
        (_COUNTS, "apple", "holds 'apple', but must be like apple=3"),
        (_COUNTS, 3, "is 3, but must be a table from fruits to counts"),
        (_COUNTS, {"apple": 10}, "of 'apple' is 10, but must be at most 9"),
        (_COUNTS, {"aple": 1}, "has no entry 'aple': did you mean apple?"),
    ],
)
def test_what_is_refused(kind: Kind[Any], value: object, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        kind.parse(value)


@given(st.integers(-(10**17), 10**17), st.integers(-5, 5), st.integers(6, 20))
def test_whole_numbers_of_a_range(number: int, low: int, high: int) -> None:
    kind = Whole(low, high)
    if low <= number <= high:
        assert kind.parse(str(number)) == kind.parse(number) == number
    else:
        with pytest.raises(ValueError, match="must be at"):
            kind.parse(str(number))


def test_values_are_written_plainly() -> None:
    """As archives have them: text and numbers, none of our classes."""
    table = Table(_FRUITS, "from names to fruits")
    assert repr(table.plain(table.parse({"x": "Apple"}))) == "(('x', 'apple'),)"
    assert type(_FRUITS.plain(Fruit.APPLE)) is str
    assert Several(Number()).plain((0.5, 2.0)) == (0.5, 2.0)
