"""Gradients of activation functions.

Most are one op of the gradient and the result, if that says enough: it lives anyway, and the
argument can then be overwritten by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Tensor
from popc.ir.attributes import number
from popc_runtime.format import DType
from popc_runtime.kernels.core.stored import from_bfloat16, to_bfloat16

__all__ = ["GRADIENTS"]


def _by_result(b: Backward) -> Sequence[Tensor | None]:
    return [b.grad_op(b.output())]


def _by_argument(b: Backward) -> Sequence[Tensor | None]:
    return [b.grad_op(b.input(0))]


def _leaky_relu(b: Backward) -> Sequence[Tensor | None]:
    """With a negative slope the result does not tell the sign of the argument."""
    return _by_argument(b) if number(b.attributes, "alpha", 0.01) < 0 else _by_result(b)


def _exponential(b: Backward) -> Sequence[Tensor | None]:
    """Elu, Celu and Selu; with a negative alpha the result does not tell the argument's sign."""
    alpha = number(b.attributes, "alpha", 1.0)
    if alpha >= 0:
        return _by_result(b)
    x, gamma = b.input(0), number(b.attributes, "gamma", 1.0)
    zero = b.scalar(0.0, x)
    below = b.emit("Min", [x, zero])
    if b.op.op_type == "Celu":
        slope = b.emit("Exp", [b.scaled(below, 1 / alpha)])
    else:
        slope = b.scaled(b.emit("Exp", [below]), alpha * gamma)
        above = b.emit("Greater", [x, zero])
        slope = b.where(above, b.scalar(gamma, x), slope)
    return [b.mul(b.grad(), slope)]


def _clip(b: Backward) -> Sequence[Tensor | None]:
    """The bounds are compared with a result that is rounded to its element type."""
    dtype = b.output().type.dtype
    bounds = {
        name: _rounded(number(b.attributes, name), dtype)
        for name in ("min", "max")
        if name in b.attributes
    }
    return [b.emit("ClipGrad", [b.grad(), b.output()], bounds)]


def _rounded(value: float, dtype: DType) -> float:
    if dtype is DType.BFLOAT16:
        return float(from_bfloat16(to_bfloat16(np.array([value], np.float32)))[0])
    return float(dtype.storage.type(value))


def _prelu(b: Backward) -> Sequence[Tensor | None]:
    g, x, slope = b.grad(), b.input(0), b.input(1)
    first = b.grad_op(x, slope) if b.wants(0) else None
    second = None
    if b.wants(1):
        below = b.emit("Min", [x, b.scalar(0.0, x)])
        second = b.sum_to(b.mul(g, below), slope.type)
    return [first, second]


GRADIENTS: Final[dict[str, GradientRule]] = {
    "Celu": _exponential,
    "Clip": _clip,
    "Elu": _exponential,
    "Erf": _by_argument,
    "FakeQuantize": _by_argument,
    "Gelu": _by_argument,
    "HardSigmoid": _by_result,
    "HardSwish": _by_argument,
    "LeakyRelu": _leaky_relu,
    "Mish": _by_argument,
    "PRelu": _prelu,
    "Relu": _by_result,
    "Selu": _exponential,
    "Shrink": _by_argument,
    "Sigmoid": _by_result,
    "Softplus": _by_argument,
    "Softsign": _by_argument,
    "Swish": _by_argument,
    "Tanh": _by_result,
    "ThresholdedRelu": _by_argument,
}
