"""Reductions along axes, and their running forms."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer, integers
from popc.ops.infer import FLOATS, normal_axis, one_dtype, operand, reduced_shape, same_along_axis
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]


def _reduce(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    x = operand(inputs, 0)
    axes = tuple(normal_axis(axis, x.rank) for axis in integers(attributes, "axes"))
    return (x.with_shape(reduced_shape(x.shape, axes, integer(attributes, "keepdims", 1))),)


def _arg(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    x = operand(inputs, 0)
    axis = normal_axis(integer(attributes, "axis"), x.rank)
    shape = reduced_shape(x.shape, (axis,), integer(attributes, "keepdims", 1))
    if x.shape[axis] == 0 and 0 not in shape:
        raise ModelError(f"axis {axis} has no elements to choose from")
    return (TensorType(DType.INT64, shape),)


def _accumulate(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Along attribute ``axis``, or else along the axis that operand 1 gives at run time."""
    if "axis" in attributes:
        return same_along_axis(inputs, attributes)
    if operand(inputs, 1).size != 1:
        raise ModelError(f"the axis must be one number, not {operand(inputs, 1)}")
    return (operand(inputs, 0),)


def _running_product_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The gradient of the result, and the operands of the running product."""
    grad, x = operand(inputs, 0), operand(inputs, 1)
    one_dtype([grad], FLOATS)
    if grad != x:
        raise ModelError(f"the gradient is {grad}, expected {x}")
    return _accumulate(inputs[1:], attributes)


_REDUCE: Final = OpSpec(_reduce, strided_input=False)
_ACCUMULATE: Final = OpSpec(_accumulate)
_ARG: Final = OpSpec(_arg)
_ALONG_AXIS: Final = OpSpec(same_along_axis)

OPS: Final[dict[str, OpSpec]] = {
    "ArgMax": _ARG,
    "ArgMin": _ARG,
    "CumProd": _ACCUMULATE,
    "CumProdGrad": OpSpec(_running_product_grad),
    "CumSum": _ACCUMULATE,
    "Hardmax": _ALONG_AXIS,
    "ReduceL1": _REDUCE,
    "ReduceL2": _REDUCE,
    "ReduceLogSum": _REDUCE,
    "ReduceLogSumExp": _REDUCE,
    "ReduceMax": _REDUCE,
    "ReduceMean": _REDUCE,
    "ReduceMin": _REDUCE,
    "ReduceProd": _REDUCE,
    "ReduceSum": _REDUCE,
    "ReduceSumSquare": _REDUCE,
}
