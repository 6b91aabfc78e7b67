"""Counts, ranks and bins."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer, integers
from popc.ops.infer import (
    FLOATS,
    NUMBERS,
    check_rank,
    normal_axis,
    one_dtype,
    operand,
    reduced_shape,
)
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]


def _bucketize(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Counts of boundaries (ascending) below each element; ``right``: or equal to it."""
    integer(attributes, "right")
    x, boundaries = operand(inputs, 0), operand(inputs, 1)
    one_dtype([x, boundaries], NUMBERS)
    check_rank(boundaries, 1, "boundaries")
    return (x.with_dtype(DType.INT32),)


def _bin_count(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Counts of elements (``absolute``: sizes) below the first level, between two, and above."""
    integer(attributes, "absolute")
    levels = operand(inputs, 1)
    one_dtype([operand(inputs, 0)], FLOATS)
    one_dtype([levels], FLOATS)
    check_rank(levels, 1, "levels")
    return (TensorType(DType.UINT32, (levels.size + 1,)),)


def _median(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The lower of the two middle elements, and its number among those reduced."""
    x = operand(inputs, 0)
    one_dtype([x], NUMBERS)
    axes = [normal_axis(axis, x.rank) for axis in integers(attributes, "axes")]
    result = x.with_shape(reduced_shape(x.shape, axes, integer(attributes, "keepdims")))
    if x.size == 0 and result.size:
        raise ModelError(f"{x} has no elements to choose from")
    return result, result.with_dtype(DType.INT32)


OPS: Final[dict[str, OpSpec]] = {
    "BinCount": OpSpec(_bin_count),
    "Bucketize": OpSpec(_bucketize),
    "ReduceMedian": OpSpec(_median),
}
