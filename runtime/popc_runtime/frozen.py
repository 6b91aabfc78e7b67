"""Dataclasses that are quick to make.

What ``@dataclass(frozen=True, slots=True)`` writes and compiles for each class takes a third of a
millisecond, which every process that runs a program would wait for, some dozens of times.  Here
only ``__init__`` is compiled; the other methods are common to all classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

__all__ = ["frozen"]

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[_T]) -> type[_T]:
    """``kind`` as ``dataclass(frozen=True, slots=True)`` makes it, `dataclasses.fields` included.

    Of `dataclasses.field`, ``init`` and ``kw_only`` are not for these classes.
    """
    own = {name for name in ("__repr__", "__eq__", "__hash__") if kind.__dict__.get(name)}
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True)(kind)
    setters = {one.name: getattr(made, one.name).__set__ for one in fields(made)}
    methods = {
        "__init__": _initialiser(made, setters),
        "__repr__": _printer(made),
        **_comparison(made),
        **_state(setters),
        "__setattr__": _refuse,
        "__delattr__": _refuse,
    }
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    result: type[_T] = made
    return result


def _initialiser(made: Any, setters: dict[str, Callable[..., None]]) -> Callable[..., None]:
    known: dict[str, Any] = {f"set_{name}": setter for name, setter in setters.items()}
    parameters: list[str] = []
    lines: list[str] = []
    for one in fields(made):
        parameters.append(_parameter(one, known))
        value = one.name
        if one.default_factory is not MISSING:
            value = f"factory_{value}() if {value} is missing else {value}"
        lines.append(f"    set_{one.name}(self, {value})")
    if hasattr(made, "__post_init__"):
        lines.append("    self.__post_init__()")
    # The names are those of attributes in a class's source.
    source = f"def __init__({', '.join(['self', *parameters])}):\n" + "\n".join(
        lines or ["    pass"]
    )
    exec(source, known)  # noqa: S102
    made_init: Callable[..., None] = known["__init__"]
    return made_init


def _parameter(one: Field[Any], known: dict[str, Any]) -> str:
    if one.default is not MISSING:
        known[f"default_{one.name}"] = one.default
        return f"{one.name}=default_{one.name}"
    if one.default_factory is not MISSING:
        known |= {f"factory_{one.name}": one.default_factory, "missing": MISSING}
        return f"{one.name}=missing"
    return one.name


def _printer(made: Any) -> Callable[[Any], str]:
    names = [one.name for one in fields(made) if one.repr]

    def __repr__(self: Any) -> str:  # noqa: N807
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    return __repr__


def _comparison(made: Any) -> dict[str, Callable[..., Any]]:
    names = [one.name for one in fields(made) if one.compare]

    # Tuples, which take an element to be equal to itself: so do dataclasses.
    key: Any = attrgetter(*names) if len(names) > 1 else _short_key(names)

    def __eq__(self: Any, other: object) -> Any:  # noqa: N807
        return key(self) == key(other) if type(other) is type(self) else NotImplemented

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(key(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _short_key(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda one: tuple(getattr(one, name) for name in names)


def _state(setters: dict[str, Callable[..., None]]) -> dict[str, Callable[..., Any]]:
    """What pickling and copying need."""

    def __getstate__(self: Any) -> list[Any]:  # noqa: N807
        return [getattr(self, name) for name in setters]

    def __setstate__(self: Any, state: list[Any]) -> None:  # noqa: N807
        for setter, value in zip(setters.values(), state, strict=True):
            setter(self, value)

    return {"__getstate__": __getstate__, "__setstate__": __setstate__}


def _refuse(self: object, name: str, value: object = None) -> None:
    del self, value
    raise FrozenInstanceError(f"cannot change field {name!r}")
