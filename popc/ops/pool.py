"""Pooling and unpooling.  Global pools are reductions; see the import rules."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer, integers
from popc.ops.infer import operand
from popc.ops.spec import OperandTypes, OpSpec
from popc.ops.windows import window_attributes
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]


def _pooled(inputs: OperandTypes, attributes: Attributes) -> TensorType:
    x, kernel = operand(inputs, 0), integers(attributes, "kernel_shape")
    if x.rank < 3 or len(kernel) != x.rank - 2 or min(kernel) < 1:
        raise ModelError(f"kernel_shape {list(kernel)} does not fit an input of {list(x.shape)}")
    window = window_attributes(attributes, len(kernel))
    ceil_mode = bool(integer(attributes, "ceil_mode", 0))
    sizes = window.outputs(x.shape[2:], kernel, ceil_mode=ceil_mode)
    return x.with_shape((*x.shape[:2], *sizes))


def _average_pool(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    return (_pooled(inputs, attributes),)


def _max_pool(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The maxima and, if attribute ``indices`` is set, their positions in the flattened input."""
    result = _pooled(inputs, attributes)
    if not integer(attributes, "indices", 0):
        return (result,)
    return (result, result.with_dtype(DType.INT64))


def _lp_pool(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    if integer(attributes, "p", 2) < 1:
        raise ModelError(f"p must be positive, not {integer(attributes, 'p')}")
    return (_pooled(inputs, attributes),)


def _average_pool_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The gradient of the averages; attributes are theirs, and ``shape``, that of the operand.

    With attribute ``sum`` it is that of sums over the windows.
    """
    dy = operand(inputs, 0)
    x = dy.with_shape(integers(attributes, "shape"))
    if _pooled([x], attributes) != dy:
        raise ModelError(f"the gradient is {dy}, which is not what {x} is pooled to")
    return (x,)


def _max_pool_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The gradient of the maxima, the operand, the maxima."""
    dy, x, y = (operand(inputs, index) for index in range(3))
    if dy != y or _pooled([x], attributes) != y:
        raise ModelError(f"the gradient is {dy}, the result {y}, but {x} is pooled to another type")
    return (x,)


def _max_unpool(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """X and indices of the same shape; attribute ``shape`` is that of the output."""
    x, indices = operand(inputs, 0), operand(inputs, 1)
    shape = integers(attributes, "shape")
    if indices != x.with_dtype(DType.INT64):
        raise ModelError(f"the indices are {indices}, expected {x.with_dtype(DType.INT64)}")
    if len(shape) != x.rank or shape[:2] != x.shape[:2] or min(shape) < 0:
        raise ModelError(f"{list(x.shape)} cannot be unpooled to {list(shape)}")
    return (x.with_shape(shape),)


OPS: Final[dict[str, OpSpec]] = {
    "AveragePool": OpSpec(_average_pool, strided_output=True),
    "AveragePoolGrad": OpSpec(_average_pool_grad),
    "LpPool": OpSpec(_lp_pool),
    "MaxPool": OpSpec(_max_pool, strided_output=True),
    "MaxPoolGrad": OpSpec(_max_pool_grad),
    "MaxUnpool": OpSpec(_max_unpool),
}
