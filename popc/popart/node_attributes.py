"""Attributes of nodes: written and read by their kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import onnx

from popc.frontend import find_attribute
from popc.popart.errors import popart_exception

__all__ = [
    "FLOAT",
    "FLOATS",
    "INT",
    "INTS",
    "STRING",
    "STRINGS",
    "AttributeValue",
    "read",
    "remove",
    "write",
    "write_attribute",
]

AttributeValue: TypeAlias = (
    "int | float | str | list[int] | list[float] | list[str] | onnx.TensorProto | onnx.GraphProto"
)

_A: Final = onnx.AttributeProto
INT, FLOAT, STRING = int(_A.INT), int(_A.FLOAT), int(_A.STRING)
INTS, FLOATS, STRINGS = int(_A.INTS), int(_A.FLOATS), int(_A.STRINGS)

# What messages call each kind, and how it is read.
_READERS: Final[dict[int, tuple[str, Callable[[onnx.AttributeProto], Any]]]] = {
    INT: ("an integer", lambda attribute: int(attribute.i)),
    INTS: ("an integer vector", lambda attribute: list(attribute.ints)),
    FLOAT: ("a float", lambda attribute: float(attribute.f)),
    FLOATS: ("a float vector", lambda attribute: list(attribute.floats)),
    STRING: ("a string", lambda attribute: attribute.s.decode()),
    STRINGS: ("a string vector", lambda attribute: [text.decode() for text in attribute.strings]),
}


def write_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Give a node an attribute, which it does not have."""
    attribute = node.attribute.add(name=name)
    if isinstance(value, list | tuple):
        _write_list(attribute, value)
    elif isinstance(value, onnx.TensorProto):
        attribute.type = _A.TENSOR
        attribute.t.CopyFrom(value)
    elif isinstance(value, onnx.GraphProto):
        attribute.type = _A.GRAPH
        attribute.g.CopyFrom(value)
    elif isinstance(value, str):
        attribute.type, attribute.s = _A.STRING, value.encode()
    elif isinstance(value, float):
        attribute.type, attribute.f = _A.FLOAT, value
    else:
        attribute.type, attribute.i = _A.INT, int(value)


def _write_list(attribute: onnx.AttributeProto, values: list[Any] | tuple[Any, ...]) -> None:
    """An empty list counts as one of whole numbers."""
    first = values[0] if values else 0
    if isinstance(first, str):
        attribute.type = _A.STRINGS
        attribute.strings.extend(value.encode() for value in values)
    elif isinstance(first, float):
        attribute.type = _A.FLOATS
        attribute.floats.extend(values)
    else:
        attribute.type = _A.INTS
        attribute.ints.extend(int(value) for value in values)


def write(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Give a node a new attribute.

    Raises:
        popart_exception: it has one of that name.
    """
    if find_attribute(node, name) is not None:
        raise popart_exception(f"Node already has attribute {name}.")
    write_attribute(node, name, value)


def read(node: onnx.NodeProto, name: str, kind: int) -> Any:
    """The value of an attribute of a certain kind.

    Raises:
        popart_exception: the node has none of that name, or one of another kind.
    """
    attribute = find_attribute(node, name)
    if attribute is None:
        raise popart_exception(f"Node does not have an attribute {name}.")
    what, reader = _READERS[kind]
    if attribute.type != kind:
        raise popart_exception(f"Attribute {name} is not {what}.")
    return reader(attribute)


def remove(node: onnx.NodeProto, name: str) -> None:
    """Take an attribute away.

    Raises:
        popart_exception: the node has none of that name.
    """
    attribute = find_attribute(node, name)
    if attribute is None:
        raise popart_exception(f"Cannot remove attribute {name} as it does not exist.")
    node.attribute.remove(attribute)
