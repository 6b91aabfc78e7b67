"""Dataclasses that are quick to make.

The methods that ``@dataclass`` compiles for each class take a third of a millisecond, which every
process that runs a program would wait for, some dozens of times, and one that compiles a program
some hundreds of times; importing `dataclasses` takes longer than loading a small program.
Here ``__init__`` is compiled when a class has made some objects, and the other methods are common
to all classes.
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
        values, places = value.__frozen_maker__.taken(value)
        for name in [name for name in changes if name in places]:
            values[places[name]] = changes.pop(name)
        return type(value)(*values, **changes)  # which raises if any is left


__all__ = [
    "distinct",
    "field",
    "field_names",
    "field_settings",
    "field_types",
    "frozen",
    "inheritable",
    "mutable",
    "replace",
]

_T = TypeVar("_T")
_MISSING: Final = object()
_MANY: Final = 64  # objects of a class, for which compiling takes less time than it saves
_OWN: Final = "__frozen_fields__"
_MAKER: Final = "__frozen_maker__"
_KNOWN: Final = ("default", "default_factory", "repr", "hash", "compare", "metadata")


class _Said(dict[str, Any]):
    """The settings that a class gives for a field."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[_T]) -> type[_T]:
    """``kind`` as ``dataclass(frozen=True, slots=True)`` makes it, `dataclasses.fields` included.

    Of `dataclasses.field`, ``init`` and ``kw_only`` are not for these classes.
    """
    return _slotted(kind, _FROZEN)


@dataclass_transform(field_specifiers=(field,))
def mutable(kind: type[_T]) -> type[_T]:
    """``kind`` as ``dataclass(slots=True)`` makes it; see `frozen`."""
    return _slotted(kind, _MUTABLE)


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def distinct(kind: type[_T]) -> type[_T]:
    """``kind`` as ``dataclass(slots=True, eq=False)`` makes it: an object equals itself alone."""
    return _slotted(kind, _DISTINCT)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def inheritable(kind: type[_T]) -> type[_T]:
    """``kind`` as ``dataclass(frozen=True)`` makes it: a class may have several such bases."""
    given = dict(vars(kind))
    own = _own_fields(kind)
    all_fields = {**_inherited_fields(kind), **own}
    for name, (_, said) in own.items():
        if "default" in said:
            setattr(kind, name, said["default"])
        elif name in given:
            delattr(kind, name)
    return _completed(kind, given, all_fields, _FROZEN)


def _completed(
    kind: type[_T], given: Mapping[str, Any], all_fields: _Fields, methods: Mapping[str, Any]
) -> type[_T]:
    """``kind`` itself, with what all such classes have beside what it was ``given``."""
    for name, value in _common(given, all_fields, methods).items():
        setattr(kind, name, value)
    setattr(kind, _MAKER, _Maker(kind, all_fields, [*map(_setter, all_fields)]))
    return kind


def _slotted(kind: type[_T], methods: Mapping[str, Any]) -> type[_T]:
    given = vars(kind)
    own, inherited = _own_fields(kind), _inherited_fields(kind)
    all_fields = {**inherited, **own}
    if not all_fields and any(base.__dictoffset__ for base in kind.__bases__):
        return _completed(kind, given, all_fields, methods)  # slots would save nothing
    namespace = {
        **{name: value for name, value in given.items() if name not in own},
        "__slots__": tuple(name for name in own if name not in inherited),
        **_common(given, all_fields, methods),
    }
    for name in ("__dict__", "__weakref__"):
        namespace.pop(name, None)
    metaclass: Any = type(kind)
    made: type[_T] = metaclass(kind.__name__, kind.__bases__, namespace)
    made.__qualname__ = kind.__qualname__
    setters = [getattr(made, name).__set__ for name in all_fields]
    setattr(made, _MAKER, _Maker(made, all_fields, setters, assigns=methods is not _FROZEN))
    return made


def _own_fields(kind: type) -> _Fields:
    """The fields that a class declares itself."""
    # Annotations are text, in the order of the source.
    annotations = vars(kind).get("__annotations__", {})
    return {
        name: (text, _said(vars(kind), name))
        for name, text in annotations.items()
        if "ClassVar" not in text
    }


def _inherited_fields(kind: type) -> _Fields:
    fields: _Fields = {}
    for base in reversed(kind.__mro__[1:]):
        fields = {**fields, **vars(base).get(_OWN, {})}
    return fields


def _common(
    given: Mapping[str, Any], all_fields: _Fields, methods: Mapping[str, Any]
) -> dict[str, Any]:
    """Attributes of all such classes, but for methods that the class ``given`` has of its own."""
    kept = {name for name in methods if name in given and given[name] is not None}
    return {
        **{name: value for name, value in methods.items() if name not in kept},
        "__match_args__": tuple(all_fields),
        _OWN: all_fields,
        "__dataclass_fields__": _LazyFields(),
    }


def field_names(kind: type) -> Iterable[str]:
    """The names of a frozen class's fields, in order."""
    names: Iterable[str] = getattr(kind, _OWN)
    return names


def field_types(kind: type) -> dict[str, str]:
    """The types of a frozen class's fields, as text, by name."""
    return {name: text for name, (text, _) in getattr(kind, _OWN).items()}


def field_settings(kind: type) -> dict[str, Mapping[str, Any]]:
    """The settings of each field, by name, as arguments of `field`: default, metadata, ..."""
    return {name: said for name, (_, said) in getattr(kind, _OWN).items()}


_Fields = Mapping[str, tuple[str, _Said]]
_Setter = Callable[[Any, Any], None]


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

    assert value.init, f"{name} has to be an argument of its class"
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
        bare = make_dataclass(kind.__name__, specs, init=False, repr=False, eq=False)
        made = vars(bare)["__dataclass_fields__"]
        type.__setattr__(kind, "__dataclass_fields__", made)
        return made


class _Maker:
    """Makes objects of a class, and gives way to a compiled method if that makes many."""

    __slots__ = (
        *("_assigns", "_defaults", "_enough", "_fields", "_finish", "_kind", "_left", "_places"),
        *("_values", "key", "setters"),
    )

    def __init__(
        self, kind: Any, fields: _Fields, setters: Sequence[_Setter], *, assigns: bool = False
    ) -> None:
        self._kind = kind
        self._fields = fields
        self._assigns = assigns  # in compiled code, which is faster than setters
        self._left = _MANY
        self._finish = hasattr(kind, "__post_init__")
        self._defaults = tuple([said.get("default", _MISSING) for _, said in fields.values()])
        # So many arguments leave nothing but plain defaults.
        self._enough = max(
            (n for n, default in enumerate(self._defaults, 1) if default is _MISSING), default=0
        )
        self.setters = tuple(setters)
        self.key: Callable[[Any], Any] | None = None  # what comparison compares
        self._values: Callable[[Any], Any] | None = None
        self._places: dict[str, int] = {}  # of each field among them, once they are asked for

    def fill(self, made: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Set the fields of a new object from the arguments of its class."""
        self._left -= 1
        values = given + self._defaults[len(given) :]
        if named or len(given) < self._enough:
            values = self._arranged(given, named)
        if len(values) != len(self.setters) or not self._left:
            setters = () if self._assigns else self.setters
            compiled = _compiled(self._fields, setters, finish=self._finish)
            self._kind.__init__ = compiled
            compiled(made, *given, **named)
            return
        for setter, value in zip(self.setters, values, strict=True):
            setter(made, value)
        if self._finish:
            made.__post_init__()

    def taken(self, value: Any) -> tuple[list[Any], Mapping[str, int]]:
        """The values of all fields of an object, and the place of each."""
        if self._values is None:
            self._values = _taker(list(self._fields))
            self._places = {name: place for place, name in enumerate(self._fields)}
        return [*self._values(value)], self._places

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


def _setter(name: str) -> _Setter:
    """A function that sets a field of an object without slots."""

    def put(made: object, value: object) -> None:
        object.__setattr__(made, name, value)

    return put


def _compiled(fields: _Fields, setters: Sequence[_Setter], *, finish: bool) -> Callable[..., None]:
    known: dict[str, Any] = {"__name__": __name__}  # the module that the function says it is of
    parameters: list[str] = []
    lines: list[str] = []
    known |= {f"set_{name}": setter for name, setter in zip(fields, setters, strict=False)}
    form = "    set_{}(self, {})" if setters else "    self.{} = {}"
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
        lines.append(form.format(name, value))
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
    if other is self:
        return True
    if type(other) is not type(self):
        return NotImplemented
    key = _key(self)
    return key(self) == key(other)


def _hash(self: Any) -> int:
    return hash(_key(self)(self))


def _key(self: Any) -> Callable[[Any], Any]:
    """A function that takes the fields that are compared from an object."""
    maker = self.__frozen_maker__
    if maker.key is None:  # of tuples, which take an element to be equal to itself, as dataclasses
        maker.key = _taker(_wanted(self, "compare"))
    key: Callable[[Any], Any] = maker.key
    return key


def _taker(names: list[str]) -> Callable[[Any], Any]:
    """A function that takes attributes from an object, as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
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


_MUTABLE: Final[dict[str, Any]] = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": None,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}
_DISTINCT: Final = {
    name: method for name, method in _MUTABLE.items() if name not in ("__eq__", "__hash__")
}
_REFUSING: Final = {"__setattr__": _refuse, "__delattr__": _refuse}
_FROZEN: Final = {**_MUTABLE, "__hash__": _hash, **_REFUSING}
