"""Calls of native functions: arguments are converted as PopART's binding of C++ converts them.

Where it takes a whole number, a float is refused and a truth value accepted; a list is any sequence
but text; a set is a set.  Arguments that fit no form of a function raise a `TypeError` that begins
with the function's name and lists the forms.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any, Final, ParamSpec, SupportsFloat, SupportsIndex, TypeVar, cast

import numpy as np

from popc.popart.debug import DebugContext
from popc_runtime.ground.frozen import frozen

__all__ = [
    "ARRAY",
    "BOOL",
    "DEBUG",
    "FLOAT",
    "INT",
    "INTS",
    "REQUIRED",
    "STR",
    "STRS",
    "Kind",
    "Mismatch",
    "Parameter",
    "bind",
    "call_form",
    "constructed",
    "instance_of",
    "kind_of",
    "list_of",
    "native",
    "optional",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")

REQUIRED: Final = object()
_DEBUG_NAMES: Final = ("debugContext", "debugPrefix")


class Mismatch(Exception):
    """A value does not fit a parameter."""


@frozen
class Kind:
    """The type of a parameter: its name in messages, and a conversion that raises `Mismatch`."""

    name: str
    convert: Callable[[object], Any]


@frozen
class Parameter:
    """A parameter of a form; one with the default `REQUIRED` has none."""

    name: str
    kind: Kind
    default: object = REQUIRED
    aliases: tuple[str, ...] = ()
    positional_only: bool = False

    def __str__(self) -> str:
        shown = f"{self.name}: {self.kind.name}"
        return shown if self.default is REQUIRED else f"{shown} = {self.default!r}"


# -- kinds -----------------------------------------------------------------------------------------


def _int(value: object) -> int:
    try:
        return operator.index(cast("SupportsIndex", value))
    except TypeError as error:
        raise Mismatch from error


def _float(value: object) -> float:
    if isinstance(value, str | bytes | Enum) or value is None:
        raise Mismatch
    try:
        return float(cast("SupportsFloat", value))
    except (TypeError, ValueError) as error:
        raise Mismatch from error


def _bool(value: object) -> bool:
    if isinstance(value, str | bytes | Collection) and not isinstance(value, np.ndarray):
        raise Mismatch
    return bool(value)


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise Mismatch
    return str(value)


def _debug(value: object) -> DebugContext:
    if isinstance(value, DebugContext):
        return value
    return DebugContext(_str(value))


def _array(value: object) -> np.ndarray[Any, Any]:
    if not isinstance(value, np.ndarray):
        raise Mismatch
    return value


INT: Final = Kind("int", _int)
FLOAT: Final = Kind("float", _float)
BOOL: Final = Kind("bool", _bool)
STR: Final = Kind("str", _str)
DEBUG: Final = Kind("popart.DebugContext", _debug)
ARRAY: Final = Kind("numpy.ndarray", _array)


def list_of(kind: Kind) -> Kind:
    """Any sequence of ``kind`` but text."""

    def convert(value: object) -> list[Any]:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence | np.ndarray):
            raise Mismatch
        return [kind.convert(item) for item in value]

    return Kind(f"List[{kind.name}]", convert)


def optional(kind: Kind) -> Kind:
    """``kind``, or None."""
    return Kind(
        f"Optional[{kind.name}]", lambda value: None if value is None else kind.convert(value)
    )


def instance_of(cls: type) -> Kind:
    """An object of a class."""

    def convert(value: object) -> object:
        if not isinstance(value, cls):
            raise Mismatch
        return value

    return Kind(f"popart.{cls.__name__}", convert)


INTS: Final = list_of(INT)
STRS: Final = list_of(STR)


def _set_of(kind: Kind) -> Kind:
    def convert(value: object) -> set[Any]:
        if not isinstance(value, set | frozenset):
            raise Mismatch
        return {kind.convert(item) for item in value}

    return Kind(f"Set[{kind.name}]", convert)


def _dict_of(key: Kind, item: Kind) -> Kind:
    def convert(value: object) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise Mismatch
        return {key.convert(name): item.convert(content) for name, content in value.items()}

    return Kind(f"Dict[{key.name}, {item.name}]", convert)


def _either(kinds: Sequence[Kind]) -> Kind:
    def convert(value: object) -> object:
        for kind in kinds:
            try:
                return kind.convert(value)
            except Mismatch:
                continue
        raise Mismatch

    return Kind(f"Union[{', '.join(kind.name for kind in kinds)}]", convert)


_ANY: Final = Kind("object", lambda value: value)
_SIMPLE: Final[dict[object, Kind]] = {
    int: INT,
    float: FLOAT,
    bool: BOOL,
    str: STR,
    object: _ANY,
    Any: _ANY,
    DebugContext | str: DEBUG,
}


@functools.cache
def kind_of(hint: Any) -> Kind:
    """The kind that an annotation stands for."""
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is np.ndarray:
        return ARRAY
    if origin in (types.UnionType, typing.Union):
        return _union(
            [argument for argument in arguments if argument is not type(None)], len(arguments)
        )
    if origin in _CONTAINERS:
        return _CONTAINERS[origin](*map(kind_of, arguments))
    assert isinstance(hint, type), hint
    return instance_of(hint)


def _union(members: Sequence[Any], count: int) -> Kind:
    """The union of several members; with None, if there are fewer than ``count``."""
    kinds = [kind_of(op) for op in members]
    kind = kinds[0] if len(kinds) == 1 else _either(kinds)
    return optional(kind) if len(members) < count else kind


_CONTAINERS: Final[dict[Any, Callable[..., Kind]]] = {
    Sequence: list_of,
    list: list_of,
    set: _set_of,
    dict: _dict_of,
    Mapping: _dict_of,
}


# -- binding ---------------------------------------------------------------------------------------


def bind(
    function: str,
    forms: Sequence[Sequence[Parameter]],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    what: str = "function",
) -> tuple[int, list[Any]]:
    """The first form that the arguments fit, and a value for each of its parameters, in order.

    Raises:
        TypeError: there is none.
    """
    for index, form in enumerate(forms):
        try:
            return index, _bound(form, args, kwargs)
        except Mismatch:
            continue
    listed = "\n".join(
        f"    {number}. ({', '.join(map(str, form))})" for number, form in enumerate(forms, 1)
    )
    given = ", ".join([*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())])
    raise TypeError(
        f"{function}(): incompatible {what} arguments. "
        f"The following argument types are supported:\n{listed}\n\nInvoked with: {given}"
    )


def _bound(
    form: Sequence[Parameter], args: Sequence[object], kwargs: Mapping[str, object]
) -> list[Any]:
    if len(args) > len(form):
        raise Mismatch
    left = dict(kwargs)
    values: list[Any] = [
        parameter.kind.convert(value) for parameter, value in zip(form, args, strict=False)
    ]
    for parameter in form[len(args) :]:
        given = [] if parameter.positional_only else _named(parameter, left)
        if given:
            values.append(parameter.kind.convert(left.pop(given[0])))
        elif parameter.default is REQUIRED:
            raise Mismatch
        else:
            values.append(_fresh(parameter))
    if left:
        raise Mismatch
    return values


def _named(parameter: Parameter, kwargs: Mapping[str, object]) -> list[str]:
    return [name for name in (parameter.name, *parameter.aliases) if name in kwargs]


def _fresh(parameter: Parameter) -> object:
    """The default; a copy, if it could be changed."""
    if parameter.kind is DEBUG:
        return DebugContext(str(parameter.default))
    return parameter.default.copy() if isinstance(parameter.default, list) else parameter.default


# -- functions with annotations --------------------------------------------------------------------


@functools.cache
def _form_of(function: Callable[..., object]) -> tuple[Parameter, ...]:
    """The parameters of a method, without the receiver, as its annotations say."""
    hints = typing.get_type_hints(function)
    signature = list(inspect.signature(function).parameters.values())[1:]
    return tuple(
        Parameter(
            parameter.name,
            kind_of(hints[parameter.name]),
            REQUIRED if parameter.default is parameter.empty else parameter.default,
            _DEBUG_NAMES if parameter.name in _DEBUG_NAMES else (),
            parameter.kind is parameter.POSITIONAL_ONLY,
        )
        for parameter in signature
    )


def call_form(
    name: str,
    functions: Sequence[Callable[..., Any]],
    receiver: object,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> Any:
    """Call the first of ``functions`` (unbound methods) that the arguments fit.

    Raises:
        TypeError: there is none.
    """
    what = "constructor" if name == "__init__" else "function"
    index, values = bind(name, [_form_of(function) for function in functions], args, kwargs, what)
    return functions[index](receiver, *values)


def constructed(
    receiver: object,
    functions: Sequence[Callable[..., None]],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> None:
    """Initialise an object by the first of ``functions`` that the arguments fit.

    Raises:
        TypeError: there is none.
    """
    call_form("__init__", functions, receiver, args, kwargs)


def native(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """A method whose arguments are converted as its annotations say, or refused."""
    name = method.__name__

    @functools.wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Any:
        return call_form(name, (method,), args[0], args[1:], kwargs)

    return checked
