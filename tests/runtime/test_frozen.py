"""`frozen` makes what ``dataclass(frozen=True, slots=True)`` makes."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from math import nan
from typing import Any

import pytest

from popc_runtime.ground.frozen import frozen


@frozen
class Point:
    """What `Usual` is too."""

    x: int
    label: str = "here"
    values: list[int] = field(default_factory=list[int])
    note: object = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("negative")


@frozen
class Place(Point):
    """With a field of its own."""

    height: float = 0.0


@frozen
class Single:
    """One field."""

    x: object


@frozen
class Nothing:
    """No field."""


@frozen
class Own:
    """With methods of its own."""

    x: int

    def __repr__(self) -> str:
        return "own"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    def __hash__(self) -> int:
        return 7


@dataclass(frozen=True, slots=True)
class Usual:
    """The pattern."""

    x: int
    label: str = "here"
    values: list[int] = field(default_factory=list[int])
    note: object = field(default=None, compare=False, repr=False)


def test_values_defaults_and_text_are_those_of_a_dataclass() -> None:
    for arguments in ((1,), (1, "there"), (1, "there", [3], 4)):
        made: Any = Point(*arguments)
        usual: Any = Usual(*arguments)
        assert repr(made) == repr(usual).replace("Usual", "Point")
        assert [getattr(made, field.name) for field in fields(made)] == [
            getattr(usual, field.name) for field in fields(usual)
        ]
    assert Point(1).values is not Point(1).values
    assert Place(1, height=2.0).height == 2.0
    assert not hasattr(Point(1), "__dict__")


def test_post_init_is_called() -> None:
    with pytest.raises(ValueError, match="negative"):
        Point(-1)
    with pytest.raises(ValueError, match="negative"):
        replace(Place(1), x=-1)


@pytest.mark.parametrize("arguments", [(), (1, "", [], None, 5)])
def test_wrong_arguments_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match="__init__"):
        Point(*arguments)


def test_comparison_and_hash() -> None:
    assert Point(1, note=1) == Point(1, note=2)
    assert Point(1) != Point(2)
    assert Point(1) != Place(1)
    usual: object = Usual(1)
    assert Point(1) != usual
    assert Single(nan) != Single(float("nan"))
    assert Single(nan) == Single(nan)
    assert hash(Single((1, 2))) == hash(Single((1, 2))) == hash(((1, 2),))
    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(())
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1))
    assert (repr(Own(1)), Own(1) == Own(2), hash(Own(1))) == ("own", True, 7)


def test_nothing_can_be_changed() -> None:
    point: Any = Point(1)
    with pytest.raises(FrozenInstanceError):
        point.x = 2
    with pytest.raises(FrozenInstanceError):
        del point.x
    with pytest.raises(FrozenInstanceError):
        point.other = 2
    assert point == Point(1)


def test_copies() -> None:
    place = Place(1, "there", [2], (3,), 4.0)
    copies = (copy.copy(place), copy.deepcopy(place), pickle.loads(pickle.dumps(place)))
    assert all(copy_ == place and copy_.note == (3,) and copy_ is not place for copy_ in copies)
    assert copies[1].values is not place.values
    match place:
        case Place(x, label):
            assert (x, label) == (1, "there")
