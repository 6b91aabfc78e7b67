"""Dataclasses that are quick to make.

What ``@dataclass(frozen=True, slots=True)`` writes and compiles for each class takes a third of a
millisecond, which every process that runs a program would wait for, some dozens of times, and
importing `dataclasses` takes longer than loading a small program.  Here ``__init__`` is compiled
when a class has made some objects, and the other methods are common to all classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from dataclasses import Field, field, replace
else:

    def field(**said: Any) -> _Said:
        """As `dataclasses.field`."""
        return _Said(said)

    def replace(value: Any, /, **changes: Any) -> Any:
        """As `dataclasses.replace`, of a frozen value."""
        for name in field_types(type(value)):
            changes.setdefault(name, getattr(value, name))
        return type(value)(**changes)


__all__ = ["field", "field_types", "frozen", "replace"]

_T = TypeVar("_T")
_MISSING: Final = object()
_FEW: Final = 16  # objects of a class, for which compiling takes longer than it saves
_OWN: Final = "__frozen_fields__"
_KNOWN: Final = ("default", "default_factory", "repr", "hash", "compare", "metadata")


class _Said(dict[str, Any]):
    """What a class says about a field."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[_T]) -> type[_T]:
    """``kind`` as ``dataclass(frozen=True, slots=True)`` makes it, `dataclasses.fields` included.

    Of `dataclasses.field`, ``init`` and ``kw_only`` are not for these classes.
    """
    # Annotations are text, in the order of the source.
    types = {name: text for name, text in kind.__annotations__.items() if "ClassVar" not in text}
    namespace = {
        name: value
        for name, value in vars(kind).items()
        if name not in types and name not in ("__dict__", "__weakref__")
    }
    own = {name: (text, _said(vars(kind), name)) for name, text in types.items()}
    inherited = [vars(base).get(_OWN, {}) for base in reversed(kind.__mro__[1:])]
    all_fields = {name: one for base in (*inherited, own) for name, one in base.items()}
    known = {name for part in inherited for name in part}
    namespace["__slots__"] = tuple(name for name in types if name not in known)
    namespace["__match_args__"] = tuple(all_fields)
    namespace[_OWN] = all_fields
    namespace["__dataclass_fields__"] = _LazyFields()
    metaclass: Any = type(kind)
    made: Any = metaclass(kind.__name__, kind.__bases__, namespace)
    made.__qualname__ = kind.__qualname__
    written = {name for name in ("__repr__", "__eq__", "__hash__") if vars(kind).get(name)}
    for name, method in _methods(made, all_fields).items():
        if name not in written:
            setattr(made, name, method)
    result: type[_T] = made
    return result


def field_types(kind: type) -> dict[str, str]:
    """The types of a frozen class's fields, as text, by name."""
    return {name: text for name, (text, _) in getattr(kind, _OWN).items()}


_Fields = Mapping[str, tuple[str, _Said]]
_Setters = Mapping[str, Callable[..., None]]


def _said(values: Mapping[str, Any], name: str) -> _Said:
    """What a class with the attributes ``values`` says about a field."""
    if name not in values:
        return _Said()
    value = values[name]
    if isinstance(value, _Said):
        return value
    if type(value).__module__ != "dataclasses":
        return _Said(default=value)
    from dataclasses import MISSING

    given = {one: getattr(value, one) for one in _KNOWN}
    return _Said({one: what for one, what in given.items() if what is not MISSING})


class _LazyFields:
    """The attribute by which `dataclasses` knows its classes, made when it is asked for."""

    def __get__(self, value: object, kind: type) -> dict[str, Field[Any]]:
        from dataclasses import field as usual
        from dataclasses import make_dataclass

        specs: list[Any] = [
            (name, text, usual(**said)) for name, (text, said) in getattr(kind, _OWN).items()
        ]
        made: dict[str, Field[Any]]
        made = vars(make_dataclass(kind.__name__, specs))["__dataclass_fields__"]
        type.__setattr__(kind, "__dataclass_fields__", made)
        return made


def _methods(made: Any, fields: _Fields) -> dict[str, Callable[..., Any]]:
    setters = {name: getattr(made, name).__set__ for name in fields}
    return {
        "__init__": _initialiser(made, fields, setters),
        "__repr__": _printer(_wanted(fields, "repr")),
        **_comparison(_wanted(fields, "compare")),
        **_state(setters),
        "__setattr__": _refuse,
        "__delattr__": _refuse,
    }


def _wanted(fields: _Fields, where: str) -> list[str]:
    return [name for name, (_, said) in fields.items() if said.get(where, True)]


def _initialiser(made: Any, fields: _Fields, setters: _Setters) -> Callable[..., None]:
    """A method that gives way to one compiled for the class, if that makes many objects."""
    left = _FEW

    def __init__(self: Any, *arguments: Any, **named: Any) -> None:  # noqa: N807
        nonlocal left
        left -= 1
        if left and _fill(self, arguments, named, fields, setters):
            return
        compiled = _compiled(made, fields, setters)
        made.__init__ = compiled
        compiled(self, *arguments, **named)

    return __init__


def _fill(
    made: Any, given: tuple[Any, ...], named: dict[str, Any], fields: _Fields, setters: _Setters
) -> bool:
    """Whether the arguments are those of the fields; then they are set."""
    values = dict(zip(fields, given, strict=False))
    if len(given) > len(fields) or not named.keys() <= fields.keys() - values.keys():
        return False
    values |= named
    for name, (_, said) in fields.items():
        if name in values:
            value = values[name]
        elif "default" in said:
            value = said["default"]
        elif "default_factory" in said:
            value = said["default_factory"]()
        else:
            return False
        setters[name](made, value)
    if hasattr(made, "__post_init__"):
        made.__post_init__()
    return True


def _compiled(made: Any, fields: _Fields, setters: _Setters) -> Callable[..., None]:
    known: dict[str, Any] = {f"set_{name}": setter for name, setter in setters.items()}
    parameters: list[str] = []
    lines: list[str] = []
    for name, (_, said) in fields.items():
        parameter = value = name
        if "default" in said:
            known[f"default_{name}"] = said["default"]
            parameter = f"{name}=default_{name}"
        elif "default_factory" in said:
            known |= {f"factory_{name}": said["default_factory"], "missing": _MISSING}
            parameter = f"{name}=missing"
            value = f"factory_{name}() if {name} is missing else {name}"
        parameters.append(parameter)
        lines.append(f"    set_{name}(self, {value})")
    if hasattr(made, "__post_init__"):
        lines.append("    self.__post_init__()")
    # The names are those of attributes in a class's source.
    source = f"def __init__({', '.join(['self', *parameters])}):\n" + "\n".join(
        lines or ["    pass"]
    )
    exec(source, known)  # noqa: S102
    compiled: Callable[..., None] = known["__init__"]
    return compiled


def _printer(names: list[str]) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:  # noqa: N807
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    return __repr__


def _comparison(names: list[str]) -> dict[str, Callable[..., Any]]:
    # Tuples, which take an element to be equal to itself: so do dataclasses.
    key: Any = attrgetter(*names) if len(names) > 1 else _short_key(names)

    def __eq__(self: Any, other: object) -> Any:  # noqa: N807
        return key(self) == key(other) if type(other) is type(self) else NotImplemented

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(key(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _short_key(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda one: tuple(getattr(one, name) for name in names)


def _state(setters: _Setters) -> dict[str, Callable[..., Any]]:
    """What pickling and copying need."""

    def __getstate__(self: Any) -> list[Any]:  # noqa: N807
        return [getattr(self, name) for name in setters]

    def __setstate__(self: Any, state: list[Any]) -> None:  # noqa: N807
        for setter, value in zip(setters.values(), state, strict=True):
            setter(self, value)

    return {"__getstate__": __getstate__, "__setstate__": __setstate__}


def _refuse(self: object, name: str, value: object = None) -> NoReturn:
    from dataclasses import FrozenInstanceError

    del self, value
    raise FrozenInstanceError(f"cannot change field {name!r}")
