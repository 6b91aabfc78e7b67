"""Dataclasses that are quick to make.

What ``@dataclass(frozen=True, slots=True)`` writes and compiles for each class takes a third of a
millisecond, which every process that runs a program would wait for, some dozens of times, and
importing `dataclasses` takes longer than loading a small program.  Here ``__init__`` is compiled
when a class has made some objects, and the other methods are common to all classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

from popc_runtime.ground.hints import (
    TYPE_CHECKING,
    Any,
    Final,
    NoReturn,
    TypeVar,
    dataclass_transform,
)

if TYPE_CHECKING:
    from dataclasses import Field, field, replace
else:

    def field(**said: Any) -> _Said:
        """Stand in for `dataclasses.field`."""
        return _Said(said)

    def replace(value: Any, /, **changes: Any) -> Any:
        """Stand in for `dataclasses.replace`, of a frozen value."""
        for name in field_names(type(value)):
            changes.setdefault(name, getattr(value, name))
        return type(value)(**changes)


__all__ = ["field", "field_names", "field_types", "frozen", "replace"]

_T = TypeVar("_T")
_MISSING: Final = object()
_MANY: Final = 64  # objects of a class, for which compiling takes less time than it saves
_OWN: Final = "__frozen_fields__"
_KNOWN: Final = ("default", "default_factory", "repr", "hash", "compare", "metadata")


class _Said(dict[str, Any]):
    """The settings that a class gives for a field."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[_T]) -> type[_T]:
    """``kind`` as ``dataclass(frozen=True, slots=True)`` makes it, `dataclasses.fields` included.

    Of `dataclasses.field`, ``init`` and ``kw_only`` are not for these classes.
    """
    given = vars(kind)
    # Annotations are text, in the order of the source.
    types = {name: text for name, text in kind.__annotations__.items() if "ClassVar" not in text}
    own = {name: (text, _said(given, name)) for name, text in types.items()}
    inherited: dict[str, tuple[str, _Said]] = {}
    for base in reversed(kind.__mro__[1:]):
        inherited |= vars(base).get(_OWN, {})
    all_fields = {**inherited, **own}
    namespace = {
        **_METHODS,
        **{name: value for name, value in given.items() if name not in types},
        "__slots__": tuple(name for name in types if name not in inherited),
        "__match_args__": tuple(all_fields),
        _OWN: all_fields,
        "__dataclass_fields__": _LazyFields(),
    }
    for name in ("__dict__", "__weakref__"):
        namespace.pop(name, None)
    for name in _WRITTEN:
        namespace[name] = given.get(name) or _METHODS[name]
    metaclass: Any = type(kind)
    made: Any = metaclass(kind.__name__, kind.__bases__, namespace)
    made.__qualname__ = kind.__qualname__
    made.__frozen_maker__ = _Maker(made, all_fields)
    result: type[_T] = made
    return result


def field_names(kind: type) -> Iterable[str]:
    """The names of a frozen class's fields, in order."""
    names: Iterable[str] = getattr(kind, _OWN)
    return names


def field_types(kind: type) -> dict[str, str]:
    """The types of a frozen class's fields, as text, by name."""
    return {name: text for name, (text, _) in getattr(kind, _OWN).items()}


_Fields = Mapping[str, tuple[str, _Said]]


def _said(values: Mapping[str, Any], name: str) -> _Said:
    """The settings for a field of a class with the attributes ``values``."""
    if name not in values:
        return _NOTHING_SAID
    value = values[name]
    if isinstance(value, _Said):
        return value
    if type(value).__module__ != "dataclasses":
        return _Said(default=value)
    from dataclasses import MISSING

    given = {key: getattr(value, key) for key in _KNOWN}
    return _Said({key: what for key, what in given.items() if what is not MISSING})


_NOTHING_SAID: Final = _Said()


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


class _Maker:
    """Makes objects of a class, and gives way to a compiled method if that makes many."""

    __slots__ = ("_defaults", "_enough", "_fields", "_finish", "_kind", "_left", "key", "setters")

    def __init__(self, kind: Any, fields: _Fields) -> None:
        self._kind = kind
        self._fields = fields
        self._left = _MANY
        self._finish = hasattr(kind, "__post_init__")
        self._defaults = tuple([said.get("default", _MISSING) for _, said in fields.values()])
        # So many arguments leave nothing but plain defaults.
        self._enough = max(
            (n for n, default in enumerate(self._defaults, 1) if default is _MISSING), default=0
        )
        self.setters = tuple([getattr(kind, name).__set__ for name in fields])
        self.key: Callable[[Any], Any] | None = None  # what comparison compares

    def fill(self, made: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Set the fields of a new object from the arguments of its class."""
        self._left -= 1
        values = given + self._defaults[len(given) :]
        if named or len(given) < self._enough:
            values = self._arranged(given, named)
        if len(values) != len(self.setters) or not self._left:
            compiled = _compiled(self._fields, self.setters, finish=self._finish)
            self._kind.__init__ = compiled
            compiled(made, *given, **named)
            return
        for setter, value in zip(self.setters, values, strict=True):
            setter(made, value)
        if self._finish:
            made.__post_init__()

    def _arranged(self, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """The values of all fields; fewer or more if the arguments are not those of the fields."""
        values = list(given)
        taken = 0
        for name, (_, said) in list(self._fields.items())[len(given) :]:
            if name in named:
                values.append(named[name])
                taken += 1
            elif "default" in said:
                values.append(said["default"])
            elif "default_factory" in said:
                values.append(said["default_factory"]())
            else:
                return ()
        return tuple(values) if taken == len(named) else ()


def _compiled(
    fields: _Fields, setters: Sequence[Callable[..., None]], *, finish: bool
) -> Callable[..., None]:
    known: dict[str, Any] = {"__name__": __name__}  # the module that the function says it is of
    parameters: list[str] = []
    lines: list[str] = []
    for (name, (_, said)), setter in zip(fields.items(), setters, strict=True):
        known[f"set_{name}"] = setter
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
    if finish:
        lines.append("    self.__post_init__()")
    # The names are those of attributes in a class's source.
    source = f"def __init__({', '.join(['self', *parameters])}):\n" + "\n".join(
        lines or ["    pass"]
    )
    exec(source, known)  # noqa: S102
    compiled: Callable[..., None] = known["__init__"]
    return compiled


# -- what all classes have -------------------------------------------------------------------------


def _init(self: Any, *arguments: Any, **named: Any) -> None:
    self.__frozen_maker__.fill(self, arguments, named)


_init.__name__ = "__init__"  # as errors tell it


def _repr(self: Any) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in _wanted(self, "repr"))
    return f"{type(self).__qualname__}({values})"


def _eq(self: Any, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    key = _key(self)
    return key(self) == key(other)


def _hash(self: Any) -> int:
    return hash(_key(self)(self))


def _key(self: Any) -> Callable[[Any], Any]:
    """A function that takes the fields that are compared from an object."""
    maker = self.__frozen_maker__
    if maker.key is None:
        names = _wanted(self, "compare")
        # Tuples, which take an element to be equal to itself: so do dataclasses.
        maker.key = attrgetter(*names) if len(names) > 1 else _short_key(names)
    key: Callable[[Any], Any] = maker.key
    return key


def _short_key(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda self: tuple(getattr(self, name) for name in names)


def _wanted(self: Any, where: str) -> list[str]:
    return [name for name, (_, said) in getattr(self, _OWN).items() if said.get(where, True)]


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, name) for name in getattr(self, _OWN)]


def _setstate(self: Any, state: list[Any]) -> None:
    for setter, value in zip(self.__frozen_maker__.setters, state, strict=True):
        setter(self, value)


def _refuse(self: object, name: str, value: object = None) -> NoReturn:
    from dataclasses import FrozenInstanceError

    del self, value
    raise FrozenInstanceError(f"cannot change field {name!r}")


_METHODS: Final[dict[str, Any]] = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
}
_WRITTEN: Final = ("__repr__", "__eq__", "__hash__")  # those that a class may have of its own
