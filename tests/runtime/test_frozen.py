"""Classes of `frozen` and the like are what dataclasses with certain settings are."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from functools import cached_property
from math import nan
from typing import Any

import pytest

from popc_runtime.ground.frozen import distinct, field_settings, frozen, inheritable, mutable
from popc_runtime.ground.frozen import field as given_field
from popc_runtime.ground.frozen import replace as quick_replace


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


@mutable
class Counter:
    """Fields that can be changed."""

    name: str
    seen: list[int] = field(default_factory=list[int])
    count: int = 0


def test_a_mutable_one_can_be_changed_and_has_no_hash() -> None:
    counter = Counter("a")
    counter.count += 2
    assert (counter, repr(counter)) == (
        Counter("a", count=2),
        "Counter(name='a', seen=[], count=2)",
    )
    assert counter != Counter("a")
    assert counter.seen is not Counter("a").seen
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)
    untyped: Any = counter
    with pytest.raises(AttributeError):
        untyped.other = 1
    assert pickle.loads(pickle.dumps(counter)) == counter


@distinct
class Named:
    """An object that others may be like."""

    name: str
    links: dict[Named, int] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class UsuallyNamed:
    """The same as a dataclass."""

    name: str
    links: dict[UsuallyNamed, int] = field(default_factory=dict)


@pytest.mark.parametrize("kind", [Named, UsuallyNamed])
def test_a_distinct_one_is_equal_to_itself_alone(kind: Any) -> None:
    made = [kind("a") for _ in range(100)]  # some by code that is compiled meanwhile
    assert len(set(made)) == 100
    assert made[0] == made[0]
    assert made[0] != made[1]
    made[0].links[made[-1]] = 3
    assert made[0].links == {made[-1]: 3}
    assert made[1].links == {}
    assert not hasattr(made[0], "__dict__")
    copied = copy.copy(made[0])
    assert (copied.name, copied.links) == ("a", made[0].links)
    made[0].name = "b"
    assert repr(made[0]).startswith(f"{kind.__name__}(name='b', links=")


@inheritable
class Left:
    """One group of fields."""

    x: int = given_field(default=1, metadata={"kind": "whole"})
    values: list[int] = field(default_factory=list[int])


@inheritable
class Right:
    """Another one."""

    y: int = 2

    def name(self) -> str:
        """A method that the class below goes on with."""
        return f"y{self.y}"


@inheritable
class Both(Left, Right):
    """All fields of both, and one more."""

    z: int = 3

    def name(self) -> str:
        """The name of the base, and one more letter."""
        return super().name() + "z"

    @cached_property
    def total(self) -> int:
        """Kept in the object."""
        return self.x + self.y + self.z


@dataclass(frozen=True)
class UsualBoth:
    """The pattern, in the order of `Both`: fields of the last base first."""

    y: int = 2
    x: int = 1
    values: list[int] = field(default_factory=list[int])
    z: int = 3


def test_fields_of_several_bases() -> None:
    made = Both(x=5, z=7)
    assert repr(made) == repr(UsualBoth(x=5, z=7)).replace("Usual", "")
    assert (made.total, made.name(), Both.x, Left.x) == (14, "y2z", 1, 1)
    assert (replace(made, y=4).total, made == Both(x=5, z=7)) == (16, True)
    assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made)
    untyped: Any = made
    with pytest.raises(FrozenInstanceError):
        untyped.x = 2
    assert not hasattr(Left, "values")
    assert [field.name for field in fields(Both)] == ["y", "x", "values", "z"]
    assert fields(Both)[1].metadata["kind"] == field_settings(Both)["x"]["metadata"]["kind"]


def test_many_objects_of_several_bases() -> None:
    """Far more than those after which methods are compiled."""
    assert [repr(Both(n, z=-n)) for n in range(200)] == [
        repr(UsualBoth(n, z=-n)).replace("Usual", "") for n in range(200)
    ]


@pytest.mark.parametrize("made", [Point(1, "a", [2], "n"), Place(3, height=2.5), Single(4), Own(5)])
def test_replace_is_what_dataclasses_have(made: Any) -> None:
    for changes in ({}, {"x": 7}):
        changed, usual = quick_replace(made, **changes), replace(made, **changes)
        assert type(changed) is type(made)
        assert _field_values(changed) == _field_values(usual)
    with pytest.raises(TypeError, match="unknown"):
        quick_replace(made, unknown=1)


def test_replace_checks_what_is_made_and_leaves_the_original() -> None:
    made = Point(1, values=[2])
    with pytest.raises(ValueError, match="negative"):
        quick_replace(made, x=-1)
    changed = quick_replace(made, label="there")
    assert (changed.label, changed.values, made.label) == ("there", made.values, "here")


def _field_values(value: Any) -> list[Any]:
    """The values of all fields."""
    return [getattr(value, spec.name) for spec in fields(value)]
