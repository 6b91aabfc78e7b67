"""Top-k selection."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer
from popc.ops.infer import normal_axis, operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]


def _top_k(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source, k = operand(inputs, 0), integer(attributes, "k")
    if source.dtype is DType.BOOL:
        raise ModelError("bool has no order")
    axis = normal_axis(integer(attributes, "axis"), source.rank)
    if not 0 <= k <= source.shape[axis]:
        raise ModelError(f"k = {k} is not in 0..{source.shape[axis]}, the size of axis {axis}")
    shape = (*source.shape[:axis], k, *source.shape[axis + 1 :])
    return source.with_shape(shape), TensorType(DType.INT64, shape)


OPS: Final[dict[str, OpSpec]] = {"TopK": OpSpec(_top_k)}
