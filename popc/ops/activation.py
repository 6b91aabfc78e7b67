"""Activation functions and other unary maps that are more than one ufunc."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ops.infer import FLOATS, NUMBERS, broadcast_shapes, elementwise, one_dtype, operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["OPS"]

_FLOAT: Final = OpSpec(elementwise(FLOATS), inplace=(0,), elementwise=True, strided_output=True)
_NUMBER: Final = OpSpec(elementwise(NUMBERS), inplace=(0,), elementwise=True, strided_output=True)


def _prelu(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The slope broadcasts to the data, not the data to the slope."""
    del attributes
    x, slope = operand(inputs, 0), operand(inputs, 1)
    one_dtype([x, slope], NUMBERS)
    if broadcast_shapes([x.shape, slope.shape]) != x.shape:
        raise ModelError(f"a slope of shape {list(slope.shape)} does not fit {list(x.shape)}")
    return (x,)


OPS: Final[dict[str, OpSpec]] = {
    "Celu": _FLOAT,
    "Clip": _NUMBER,
    "Elu": _FLOAT,
    "Erf": _FLOAT,
    # round(clip(x / scale, low, high)) * scale: quantised and dequantised again
    "FakeQuantize": _FLOAT,
    "Gelu": _FLOAT,
    "HardSigmoid": _FLOAT,
    "HardSwish": _FLOAT,
    "LeakyRelu": _FLOAT,
    "Mish": _FLOAT,
    "PRelu": OpSpec(_prelu, inplace=(0,), elementwise=True, strided_output=True),
    "Relu": _NUMBER,
    "Selu": _FLOAT,
    "Shrink": _NUMBER,
    "Sigmoid": _FLOAT,
    "Softplus": _FLOAT,
    "Softsign": _FLOAT,
    "Swish": _FLOAT,
    "Tanh": _FLOAT,
    "ThresholdedRelu": _FLOAT,
}
