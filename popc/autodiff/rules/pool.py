"""Gradients of pooling and unpooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Tensor
from popc.ir.attributes import integer

__all__ = ["GRADIENTS"]


def _average_pool(b: Backward) -> Sequence[Tensor | None]:
    attributes = {**b.attributes, "shape": b.input(0).type.shape}
    return [b.emit("AveragePoolGrad", [b.grad()], attributes)]


def _lp_pool(b: Backward) -> Sequence[Tensor | None]:
    """(sum of |x| ** p) ** (1 / p): sign(x) * |x| ** (p - 1) times what windows give it.

    That is g / y ** (p - 1), or nothing from windows of zeros.
    """
    x, y, p = b.input(0), b.output(), integer(b.attributes, "p", 2)
    share = b.grad()
    if p > 1:
        is_zero = b.emit("Equal", [y, b.scalar(0.0, y)])
        divisor = b.where(is_zero, b.scalar(1.0, y), y)
        share = b.div(b.where(is_zero, b.scalar(0.0, y), share), _power(b, divisor, p - 1))
    attributes = {**b.attributes, "shape": x.type.shape, "sum": 1}
    spread = b.emit("AveragePoolGrad", [share], attributes)
    if p % 2 == 0:
        return [b.mul(spread, _power(b, x, p - 1))]
    slope = b.emit("Sign", [x])
    if p > 1:
        slope = b.mul(slope, _power(b, x, p - 1))
    return [b.mul(spread, slope)]


def _power(b: Backward, x: Tensor, exponent: int) -> Tensor:
    return x if exponent == 1 else b.emit("Pow", [x, b.scalar(float(exponent), x)])


def _max_pool(b: Backward) -> Sequence[Tensor | None]:
    return [b.grad_op(b.input(0), b.output())]


def _max_unpool(b: Backward) -> Sequence[Tensor | None]:
    """The gradient at the indices, which count over the whole result."""
    grad, indices = b.grad(), b.input(1)
    flat = b.reshape(grad, (prod(grad.type.shape),))
    return [b.emit("Gather", [flat, indices], {"axis": 0}), None]


GRADIENTS: Final[dict[str, GradientRule]] = {
    "AveragePool": _average_pool,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MaxUnpool": _max_unpool,
}
