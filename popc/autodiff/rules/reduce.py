"""Gradients of reductions: each element gets its part of the gradient of what it went into."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Final

from popc.autodiff.backward import Backward, GradientRule, no_gradient
from popc.ir import AttributeMap, Tensor
from popc.ir.attributes import integer, integers
from popc_runtime.format import DType

__all__ = ["GRADIENTS"]


def _axes(b: Backward) -> tuple[int, ...]:
    return integers(b.attributes, "axes")


def _kept(b: Backward, reduced: Tensor) -> Tensor:
    """A tensor of the result's shape with the reduced axes kept, so that it broadcasts."""
    axes = _axes(b)
    shape = tuple(1 if k in axes else dim for k, dim in enumerate(b.input(0).type.shape))
    return b.reshape(reduced, shape)


def _everywhere(b: Backward, reduced: Tensor) -> Tensor:
    return b.expand(_kept(b, reduced), b.input(0).type.shape)


# -- sums ------------------------------------------------------------------------------------------


def _sum(b: Backward) -> Sequence[Tensor | None]:
    return [_everywhere(b, b.grad())]


def _mean(b: Backward) -> Sequence[Tensor | None]:
    dims = b.input(0).type.shape
    count = prod(dims[axis] for axis in _axes(b))
    return [_everywhere(b, b.scaled(b.grad(), 1 / max(count, 1)))]


def _l1(b: Backward) -> Sequence[Tensor | None]:
    return [b.mul(b.emit("Sign", [b.input(0)]), _kept(b, b.grad()))]


def _l2(b: Backward) -> Sequence[Tensor | None]:
    """g x / y, and 0 where the norm y is 0."""
    g, y = b.grad(), b.output()
    is_zero = b.emit("Equal", [y, b.scalar(0.0, y)])
    share = b.where(is_zero, b.scalar(0.0, y), b.div(g, y))
    return [b.mul(b.input(0), _kept(b, share))]


def _sum_square(b: Backward) -> Sequence[Tensor | None]:
    return [b.mul(b.input(0), _kept(b, b.scaled(b.grad(), 2.0)))]


def _log_sum(b: Backward) -> Sequence[Tensor | None]:
    total = b.sum(b.input(0), _axes(b), keepdims=True)
    return [b.expand(b.div(_kept(b, b.grad()), total), b.input(0).type.shape)]


def _log_sum_exp(b: Backward) -> Sequence[Tensor | None]:
    """g times the softmax, and 0 where all elements are -inf.

    The result is no help: exp(x - y) is inaccurate where both are large.
    """
    x = b.input(0)
    attributes: AttributeMap = {"axes": _axes(b), "keepdims": 1}
    peak = b.emit("ReduceMax", [x], attributes)
    is_empty = b.emit("Equal", [peak, b.scalar(-inf, x)])
    zero = b.scalar(0.0, x)
    powers = b.emit("Exp", [b.sub(x, b.where(is_empty, zero, peak))])
    total = b.emit("ReduceSum", [powers], attributes)
    share = b.where(is_empty, zero, b.div(_kept(b, b.grad()), total))
    return [b.mul(powers, share)]


# -- extremes and products -------------------------------------------------------------------------


def _extreme(b: Backward) -> Sequence[Tensor | None]:
    """Elements that equal the extreme share the gradient evenly; half precision cannot count."""
    dtype = b.grad().type.dtype
    wide = DType.FLOAT64 if dtype is DType.FLOAT64 else DType.FLOAT32
    hits = b.emit("Equal", [b.input(0), _kept(b, b.output())])
    count = b.sum(b.cast(hits, wide), _axes(b), keepdims=True)
    share = b.cast(b.div(b.cast(_kept(b, b.grad()), wide), count), dtype)
    return [b.masked(hits, share)]


def _product(b: Backward) -> Sequence[Tensor | None]:
    """g times the product of the elements before and that of those after: some may be 0."""
    x, axes = b.input(0), _axes(b)
    free = [axis for axis in range(x.type.rank) if axis not in axes]
    order = [*free, *axes]
    dims = x.type.shape
    lines = (prod(dims[axis] for axis in free), prod(dims[axis] for axis in axes))
    line = b.reshape(b.transpose(x, order), lines)
    before, after = (
        b.emit("CumProd", [line], {"axis": 1, "exclusive": 1, "reverse": reverse})
        for reverse in (0, 1)
    )
    grad = b.mul(b.mul(before, after), b.reshape(b.grad(), (lines[0], 1)))
    moved = b.reshape(grad, tuple(dims[axis] for axis in order))
    return [b.transpose(moved, sorted(range(len(order)), key=order.__getitem__))]


# -- running forms ---------------------------------------------------------------------------------


def _running_sum(b: Backward) -> Sequence[Tensor | None]:
    """The sum of the gradients that come after: the same from the other end."""
    attributes = {**b.attributes, "reverse": 1 - integer(b.attributes, "reverse", 0)}
    return [b.emit("CumSum", [b.grad(), *b.op.present_inputs[1:]], attributes)]


def _running_product(b: Backward) -> Sequence[Tensor | None]:
    return [b.grad_op(*b.op.present_inputs)]


GRADIENTS: Final[dict[str, GradientRule]] = {
    "ArgMax": no_gradient,
    "ArgMin": no_gradient,
    "CumProd": _running_product,
    "CumSum": _running_sum,
    "Hardmax": no_gradient,
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _extreme,
    "ReduceMean": _mean,
    "ReduceMin": _extreme,
    "ReduceProd": _product,
    "ReduceSum": _sum,
    "ReduceSumSquare": _sum_square,
}
