"""The tables of methods, parsed.

A line reads ``method@opset OpType-version inputs>outputs parameter...``.

* ``inputs`` is a count, ``least..most`` or ``least..``; with ``~`` in front, ``args`` may be left
  out; with ``=``, it is a single name and not a list; with 0 there is no ``args``.
* ``outputs`` is a count; ``..most`` or ``..`` if the caller says how many (``num_outputs``); of
  ``1+1`` the first is returned.  A single output is returned by itself, several as a list.
* A parameter is ``name:kind`` if it is required, ``name:kind=default``, or ``name:kind?`` if it may
  be None and is not stored then.  ``name>attribute`` stores it under another name.  A value behind
  ``/`` (``kind/value``, ``kind/=default``) is not stored.  ``attribute!value`` is stored always.
* ``debug`` tells the position of ``debugContext``, which is the last otherwise; ``debug=name``
  gives it another name.

In ai.onnx defaults of texts, floats and lists are not stored; in ai.graphcore they are.
Several lines of one method and opset are forms of it, tried in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from popc.popart.calls import DEBUG, INT, REQUIRED, STR, STRS, Kind, Parameter, optional
from popc.popart.opsets.kinds import KINDS, AttributeKind
from popc_runtime.ground.frozen import frozen

__all__ = ["Attribute", "Row", "read_rows"]

_LINE: Final = re.compile(r"(\w+)@(\d+) (\w+)-(\d+) (\S+)>(\S+)((?: \S+)*)")
_TOKEN: Final = re.compile(r"(\w+)(?:>(\w+))?:(\w+)(\?|/=|/|=)?(.*)")
_STORED: Final = object()  # no value is left out
_NUMBERS: Final[Mapping[str, Callable[[str], object]]] = {
    "bool": lambda text: text == "True",
    "float": float,
    "int": int,
}
_LEFT_OUT_BY_ONNX: Final = ("float", "str", "ints", "floats", "strs")
_DEBUG_NAMES: Final = ("debugContext", "debugPrefix")


@frozen
class Attribute:
    """A parameter that becomes an attribute.

    Attributes:
        name: The attribute's name.
        kind: What the parameter takes, and what of it is stored.
        left_out: The value that is not stored.
    """

    name: str
    kind: AttributeKind
    left_out: object

    def is_stored(self, value: object) -> bool:
        """True if a value of the parameter is stored."""
        return value is not None and (self.left_out is _STORED or value != self.left_out)


@frozen
class Row:
    """A form of a method at an opset.

    Attributes:
        method, opset: Its name, and the opset from which on it is so.
        op_type, version: The operator that it makes.
        fewest, most: How many inputs it takes; ``most`` is ``None`` if there is no limit.
        outputs: How many outputs the node has, or may have at most (``None``: no limit).
        counted: Whether the caller says how many.
        returned: How many are returned.
        form: The parameters, in order.
        attributes: By parameter name, those parameters that become attributes.
        constants: Attributes that are stored always.
    """

    method: str
    opset: int
    op_type: str
    version: int
    fewest: int
    most: int | None
    outputs: int | None
    counted: bool
    returned: int
    form: tuple[Parameter, ...]
    attributes: Mapping[str, Attribute]
    constants: tuple[tuple[str, int], ...]

    @property
    def inputs_range(self) -> str:
        """The numbers of inputs, for messages."""
        return f"{self.fewest}..{'inf' if self.most is None else self.most}"

    @property
    def is_single(self) -> bool:
        """True if a call returns one name and no list."""
        return not self.counted and self.returned == 1

    def named(self, values: list[Any]) -> dict[str, Any]:
        """Bound values by the role of their parameter: `args`, `num_outputs`, `debug`, or name."""
        return {
            "debug" if parameter.kind is DEBUG else parameter.name: value
            for parameter, value in zip(self.form, values, strict=True)
        }


@cache
def read_rows(table: str, *, onnx: bool) -> tuple[Row, ...]:
    """The rows of a table; ``onnx`` says whether its domain is ai.onnx."""
    return tuple(_row(line, onnx=onnx) for line in table.strip().splitlines())


def _row(line: str, *, onnx: bool) -> Row:
    found = _LINE.fullmatch(line)
    assert found is not None, line
    method, opset, op_type, version, inputs, outputs, rest = found.groups()
    fewest, most = _range(inputs.lstrip("~="))
    counted = outputs.startswith("..")
    returned, _, hidden = outputs.removeprefix("..").partition("+")
    count = int(returned) + int(hidden or 0) if returned else None
    tokens = [token.replace("\\s", " ") for token in rest.split()]
    form = [*_leading(inputs, counted=counted), *_parameters(tokens)]
    return Row(
        method,
        int(opset),
        op_type,
        int(version),
        fewest,
        most,
        count,
        counted,
        0 if counted else int(returned),
        tuple(form),
        dict(_attributes(tokens, onnx=onnx)),
        tuple((name, int(value)) for name, mark, value in _split(tokens, "!") if mark),
    )


def _range(text: str) -> tuple[int, int | None]:
    least, dots, most = text.partition("..")
    return int(least), (int(most) if most else None) if dots else int(least)


def _leading(inputs: str, *, counted: bool) -> Iterator[Parameter]:
    if inputs.startswith("="):
        yield Parameter("args", STR)
    elif inputs != "0":
        yield Parameter("args", STRS, [] if inputs.startswith("~") else REQUIRED)
    if counted:
        yield Parameter("num_outputs", INT)


def _split(tokens: list[str], mark: str) -> Iterator[tuple[str, str, str]]:
    return (token.partition(mark) for token in tokens if ":" not in token)


def _parameters(tokens: list[str]) -> Iterator[Parameter]:
    debug = False
    for token in tokens:
        if token.startswith("debug") and ":" not in token:
            debug = True
            yield _debug(token.partition("=")[2])
        elif ":" in token:
            name, _, kind, mark, value = _fields(token)
            yield Parameter(name, _kind(kind, mark), _default(kind, mark, value))
    if not debug:
        yield _debug("")


def _debug(name: str) -> Parameter:
    own = name or _DEBUG_NAMES[0]
    return Parameter(own, DEBUG, "", tuple(name for name in _DEBUG_NAMES if name != own))


def _fields(token: str) -> tuple[str, str, str, str, str]:
    found = _TOKEN.fullmatch(token)
    assert found is not None, token
    name, attribute, kind, mark, value = found.groups()
    return name, attribute or name, kind, mark or "", value


def _kind(kind: str, mark: str) -> Kind:
    own = KINDS[kind].kind
    return optional(own) if mark == "?" else own


def _default(kind: str, mark: str, value: str) -> object:
    if mark == "?":
        return None
    return _literal(kind, value) if "=" in mark else REQUIRED


def _literal(kind: str, text: str) -> object:
    """A value as a table has it."""
    if kind in _NUMBERS:
        return _NUMBERS[kind](text)
    if kind in ("ints", "floats", "strs"):
        return []
    return KINDS[kind].default(text)


def _attributes(tokens: list[str], *, onnx: bool) -> Iterator[tuple[str, Attribute]]:
    for token in tokens:
        if ":" not in token:
            continue
        name, attribute, kind, mark, value = _fields(token)
        left_out: object = _STORED
        if "/" in mark or (onnx and mark == "=" and kind in _LEFT_OUT_BY_ONNX):
            left_out = _literal(kind, value)
        yield name, Attribute(attribute, KINDS[kind], left_out)
