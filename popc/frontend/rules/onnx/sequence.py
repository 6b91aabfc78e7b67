"""Sequences and optionals, which exist only at compile time.

Their lengths are static, so every rule merely regroups values; tensors are touched only where a
sequence is made from a tensor or joined into one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.frontend.node import Node, RuleResult
from popc.frontend.problems import AlreadyReported, DataDependent
from popc.frontend.rules.common import default_domain, graph_attribute, integers_of, known_scalar
from popc.frontend.rules.moves import emit_reshape, with_axis
from popc.frontend.tensors import dtype_from_onnx
from popc.frontend.values import OptionalValue, SequenceValue, SizedValue, Unknown, Value
from popc.ir import Shape, Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES", "split_parts"]


# -- sequences -------------------------------------------------------------------------------------


def _construct(node: Node) -> SequenceValue:
    items = [node.value(index) for index in range(len(node.inputs))]
    tensors = [
        item.padded if isinstance(item, SizedValue) else node.input(index)
        for index, item in enumerate(items)
    ]
    return SequenceValue(tuple(items), tensors[0].type.dtype if tensors else None)


def _empty(node: Node) -> SequenceValue:
    return SequenceValue((), dtype_from_onnx(node.integer("dtype", 1)))


def _position(node: Node, index: int, size: int, *, default: int) -> int:
    """A position operand, which may count from the end; 0 <= position < size."""
    if node.optional(index) is None:
        position = default
    else:
        node.require_known(index, "the length or shape of the result")
        position = int(known_scalar(node, index) or 0)
    if not -size <= position < size:
        raise ModelError(f"position {position} is out of range for {size} places")
    return position % size


def _at(node: Node) -> Value:
    items = node.sequence(0).items
    return items[_position(node, 1, len(items), default=-1)]


def _insert(node: Node) -> SequenceValue:
    """ONNX SequenceInsert-11: -n..n, where -1 is before the last element and n the end."""
    sequence = node.sequence(0)
    items, count = sequence.items, len(sequence.items)
    place = count
    if node.optional(2) is not None:
        node.require_known(2, "the order of the result")
        place = int(known_scalar(node, 2) or 0)
    if not -count <= place <= count:
        raise ModelError(f"position {place} is out of range for a sequence of {count}")
    place += count if place < 0 else 0
    return SequenceValue((*items[:place], node.value(1), *items[place:]), sequence.dtype)


def _erase(node: Node) -> SequenceValue:
    sequence = node.sequence(0)
    place = _position(node, 1, len(sequence.items), default=-1)
    return SequenceValue(sequence.items[:place] + sequence.items[place + 1 :], sequence.dtype)


def _length(node: Node) -> Tensor:
    return node.constant(np.int64(len(node.sequence(0).items)))


def _split(node: Node) -> SequenceValue:
    x = node.input(0)
    return SequenceValue(tuple(split_parts(node, x)), x.type.dtype)


def split_parts(node: Node, x: Tensor) -> list[Tensor]:
    """ONNX SplitToSequence-11: in parts of size 1, of one given size, or of given sizes.

    Only parts of size 1 that nobody asked for may lose their axis (``keepdims`` = 0).
    """
    axis = normal_axis(node.integer("axis", 0), x.type.rank)
    sizes = integers_of(node, 1, "split", "the number of parts")
    whole = x.type.shape[axis]
    if sizes is None:
        parts = (1,) * whole
    elif node.input(1).type.rank == 0:
        parts = _chunks(whole, sizes[0])
    else:
        parts = sizes
    tensors = list(node.emit_all("Split", [x], {"axis": axis, "split": parts})) if parts else []
    if sizes is None and not node.integer("keepdims", 1):
        shape = x.type.shape[:axis] + x.type.shape[axis + 1 :]
        tensors = [emit_reshape(node, tensor, shape) for tensor in tensors]
    return tensors


def _chunks(whole: int, size: int) -> Shape:
    if size < 1:
        raise ModelError(f"parts of size {size} do not split anything")
    return tuple(min(size, whole - start) for start in range(0, whole, size))


def _concat(node: Node) -> Tensor:
    items = node.sequence(0).items
    if not items:
        raise ModelError("an empty sequence has nothing to join")
    tensors = [item for item in items if isinstance(item, Tensor)]
    if len(tensors) < len(items):
        raise DataDependent("ConcatFromSequence: an element has a size that data decides")
    rank = tensors[0].type.rank
    if not node.integer("new_axis", 0):
        axis = normal_axis(node.integer("axis"), rank)
    else:
        axis = normal_axis(node.integer("axis"), rank + 1)
        tensors = [with_axis(node, tensor, axis) for tensor in tensors]
    return node.emit("Concat", tensors, {"axis": axis}) if len(tensors) > 1 else tensors[0]


def _map(node: Node) -> RuleResult:
    """The body once per element, in place; further sequences give their element too."""
    body = graph_attribute(node, "body")
    count = len(node.sequence(0).items)
    columns: list[tuple[Value, ...]] = []
    for index in range(len(node.inputs)):
        value = node.value(index)
        columns.append(value.items if isinstance(value, SequenceValue) else (value,) * count)
    if any(len(column) != count for column in columns):
        raise ModelError(f"sequences differ in length: {[len(column) for column in columns]}")
    rows = [node.importer.inline(body, list(arguments)) for arguments in zip(*columns, strict=True)]
    if any(isinstance(value, Unknown) for row in rows for value in row):
        raise AlreadyReported
    dtypes = [_element_type(info.type.tensor_type.elem_type) for info in body.output]
    return [
        SequenceValue(tuple(item for row in rows if (item := row[place]) is not None), dtype)
        for place, dtype in enumerate(dtypes)
    ]


def _element_type(number: int) -> DType | None:
    return dtype_from_onnx(number) if number else None


# -- optionals -------------------------------------------------------------------------------------


def _optional(node: Node) -> OptionalValue:
    return OptionalValue(node.optional_value(0))


def _has_element(node: Node) -> Tensor:
    value = node.optional_value(0)
    absent = value is None or (isinstance(value, OptionalValue) and value.value is None)
    return node.constant(np.asarray(not absent))


def _get_element(node: Node) -> Value:
    value = node.value(0)
    if not isinstance(value, OptionalValue):
        return value
    if value.value is None:
        raise ModelError("the optional is empty")
    return value.value


RULES: Final = default_domain(
    {
        "ConcatFromSequence": _concat,
        "Optional": _optional,
        "OptionalGetElement": _get_element,
        "OptionalHasElement": _has_element,
        "SequenceAt": _at,
        "SequenceConstruct": _construct,
        "SequenceEmpty": _empty,
        "SequenceErase": _erase,
        "SequenceInsert": _insert,
        "SequenceLength": _length,
        "SequenceMap": _map,
        "SplitToSequence": _split,
    }
)
