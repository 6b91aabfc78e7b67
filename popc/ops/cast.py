"""Conversions between element types."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ops.infer import attribute_dtype, operand
from popc.ops.spec import OperandTypes, OpSpec, OutputView
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["OPS"]


def _cast(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    return (operand(inputs, 0).with_dtype(attribute_dtype(attributes, "to")),)


def _bit_cast(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source, dtype = operand(inputs, 0), attribute_dtype(attributes, "to")
    if source.dtype.itemsize != dtype.itemsize:
        raise ModelError(f"{source.dtype} and {dtype} have different widths")
    return (source.with_dtype(dtype),)


def _same_place(
    source: TensorType,
    strides: tuple[int, ...],
    result: TensorType,
    index: int,
    attributes: Attributes,
) -> OutputView:
    del source, result, index, attributes
    return OutputView(0, strides)


OPS: Final[dict[str, OpSpec]] = {
    "BitCast": OpSpec(_bit_cast, view=_same_place, elementwise=True),
    "Cast": OpSpec(_cast, elementwise=True),
}
