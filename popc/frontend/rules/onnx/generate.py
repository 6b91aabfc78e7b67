"""Operators whose result follows from shapes and constants alone: they become constants."""

from __future__ import annotations

from math import ceil, isfinite, pi
from typing import Final

import numpy as np

from popc.frontend.node import ImportRule, Node
from popc.frontend.rules.common import default_domain, known_scalar
from popc.frontend.tensors import dtype_from_onnx
from popc.frontend.values import TextValue, Value
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES"]


def _constant(node: Node) -> Value:
    text = _text_of(node)
    return _number_constant(node) if text is None else text


def _text_of(node: Node) -> TextValue | None:
    """The strings of a constant; ``None`` if it holds numbers."""
    text = node.constant_text("value")
    if text is not None:
        return node.importer.text_constant(text.words, text.shape)
    if node.has("value_string"):
        return node.importer.text_constant([node.text("value_string")], ())
    if node.has("value_strings"):
        words = node.texts("value_strings")
        return node.importer.text_constant(words, (len(words),))
    return None


def _number_constant(node: Node) -> Tensor:
    for name in ("value", "sparse_value"):
        if node.has(name):
            type_, data = node.tensor(name)
            return node.importer.constant_node(node.output_names[0], type_, data)
    if node.has("value_float"):
        return node.constant(node.number("value_float"), DType.FLOAT32)
    if node.has("value_floats"):
        return node.constant(node.numbers("value_floats"), DType.FLOAT32)
    if node.has("value_int"):
        return node.constant(node.integer("value_int"), DType.INT64)
    if node.has("value_ints"):
        return node.constant(node.integers("value_ints"), DType.INT64)
    raise ModelError("only tensors, floats, integers and strings may be constants")


def _constant_of_shape(node: Node) -> Tensor:
    shape = tuple(int(dim) for dim in node.require_known(0, "the output shape"))
    if any(dim < 0 for dim in shape):
        raise ModelError(f"shape {list(shape)} has a negative dimension")
    if not node.has("value"):
        value = node.constant(0.0, DType.FLOAT32)
    else:
        type_, data = node.tensor("value")
        if data.size != 1:
            raise ModelError(f"attribute 'value' must hold one element, not {data.size}")
        value = node.constant(data.reshape(()), type_.dtype)
    return node.emit("Expand", [value], {"shape": shape})


def _range(node: Node) -> Tensor:
    start, limit, delta = (_required_scalar(node, index) for index in range(3))
    if delta == 0:
        raise ModelError("the delta of a range must not be 0")
    dtype = node.input(0).type.dtype
    if dtype.is_integer:
        # In whole numbers: the distance of the limits may be more than the type holds, and floats
        # miss the count.  Products that overflow come back in the sum.
        count = max(0, int(-((start - limit) // delta)))
        steps = node.positions(count) * np.int64(delta)
        return node.constant(steps + np.int64(start), dtype)
    wide = dtype is DType.FLOAT64
    work = np.dtype(np.float64 if wide else np.float32)
    limits = np.finfo(np.float64) if wide else np.finfo(np.float32)
    count = _float_count(start, limit, delta, float(limits.max))
    numbers = node.positions(count).astype(work) * work.type(delta)
    return node.constant(work.type(start) + numbers, dtype)


def _float_count(start: float, limit: float, delta: float, largest: float) -> int:
    """max(0, ceil((limit - start) / delta)), ONNX Range-11; ``largest``: number of the type."""
    count = (limit - start) / delta
    if not (abs(limit - start) <= largest and isfinite(count) and isfinite(delta)):
        raise ModelError(f"a range from {start} to {limit} by {delta} has no length that fits")
    return max(0, ceil(count))


def _required_scalar(node: Node, index: int) -> int | float:
    node.require_known(index, "the output shape")
    value = known_scalar(node, index)
    assert value is not None
    return value


def _eye_like(node: Node) -> Tensor:
    type_ = node.input(0).type
    if type_.rank != 2:
        raise ModelError(f"the input must have 2 dimensions, not {type_.rank}")
    dtype = dtype_from_onnx(node.integer("dtype")) if node.has("dtype") else type_.dtype
    rows, columns = type_.shape
    node.require_room(rows * columns)
    eye = np.eye(rows, columns, node.integer("k"), dtype=np.float32)
    return node.constant(eye, dtype)


def _window(coefficients: tuple[float, ...]) -> ImportRule:
    """a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N), N the size, less one if symmetric."""

    def rule(node: Node) -> Tensor:
        length = int(_required_scalar(node, 0))
        if length < 0:
            raise ModelError(f"a window cannot have {length} elements")
        period = length if node.integer("periodic") else max(length - 1, 1)
        phase = 2 * pi * node.positions(length) / max(period, 1)
        window = np.zeros(length)
        for order, weight in enumerate(coefficients):
            window += (-1) ** order * weight * np.cos(order * phase)
        return node.constant(window, dtype_from_onnx(node.integer("output_datatype")))

    return rule


RULES: Final = default_domain(
    {
        "BlackmanWindow": _window((0.42, 0.5, 0.08)),
        "Constant": _constant,
        "ConstantOfShape": _constant_of_shape,
        "EyeLike": _eye_like,
        "HammingWindow": _window((25 / 46, 21 / 46)),
        "HannWindow": _window((0.5, 0.5)),
        "Range": _range,
    }
)
