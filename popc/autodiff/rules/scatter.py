"""Gradients of scatter ops, as PyTorch has them where several values meet in one place.

With reduction "none" every update gets the gradient of its place, which is right as long as no two
updates share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Tensor
from popc.ir.attributes import integer, text
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = ["GRADIENTS"]

_Gradients: TypeAlias = "tuple[Tensor | None, Tensor | None]"


@frozen
class _Scatter:
    """One ScatterElements or ScatterND: its places can be read as well as written."""

    b: Backward

    def write(self, data: Tensor, updates: Tensor, reduction: str) -> Tensor:
        """``data`` with ``updates`` put into the places."""
        attributes = {**self.b.attributes, "reduction": reduction}
        return self.b.emit(self.b.op.op_type, [data, self.b.input(1), updates], attributes)

    def read(self, data: Tensor) -> Tensor:
        """The elements at the places."""
        operands = [data, self.b.input(1)]
        if self.b.op.op_type == "ScatterND":
            return self.b.emit("GatherND", operands, {"batch_dims": 0})
        axis = integer(self.b.attributes, "axis")
        return self.b.emit("GatherElements", operands, {"axis": axis})


def _replace(b: Backward, scatter: _Scatter) -> _Gradients:
    g, updates = b.grad(), b.input(2)
    first = scatter.write(g, b.zeros(updates.type), "none") if b.wants(0) else None
    return first, scatter.read(g) if b.wants(2) else None


def _add(b: Backward, scatter: _Scatter) -> _Gradients:
    return b.grad(), scatter.read(b.grad()) if b.wants(2) else None


def _multiply(b: Backward, scatter: _Scatter) -> _Gradients:
    """The product of all other factors of the place; a zero factor must not be divided by."""
    g, data, updates = b.grad(), b.input(0), b.input(2)
    first = second = None
    if b.wants(0):
        first = b.mul(g, scatter.write(b.filled(1.0, data.type), updates, "mul"))
    if b.wants(2):
        is_zero = b.emit("Equal", [updates, b.scalar(0.0, updates)])
        zero = b.cast(is_zero, updates.type.dtype)
        factors = b.where(is_zero, b.scalar(1.0, updates), updates)
        product = scatter.read(b.mul(g, scatter.write(data, factors, "mul")))
        zeros = scatter.read(scatter.write(b.zeros(data.type), zero, "add"))
        alone = b.emit("Equal", [zeros, zero])  # no other factor is zero
        second = b.masked(alone, b.div(product, factors))
    return first, second


def _extremum(b: Backward, scatter: _Scatter) -> _Gradients:
    """In equal shares to all values that equal the result of their place."""
    g, y, data, updates = b.grad(), b.output(), b.input(0), b.input(2)
    dtype = y.type.dtype
    mine = b.cast(b.emit("Equal", [data, y]), dtype)
    theirs = b.cast(b.emit("Equal", [updates, scatter.read(y)]), dtype)
    share = b.div(g, scatter.write(mine, theirs, "add"))
    first = b.mul(mine, share) if b.wants(0) else None
    return first, b.mul(theirs, scatter.read(share)) if b.wants(2) else None


_REDUCTIONS: Final[dict[str, Callable[[Backward, _Scatter], _Gradients]]] = {
    "none": _replace,
    "add": _add,
    "mul": _multiply,
    "min": _extremum,
    "max": _extremum,
}


def _scatter(b: Backward) -> Sequence[Tensor | None]:
    first, second = _REDUCTIONS[text(b.attributes, "reduction")](b, _Scatter(b))
    return [first, None, second]


def _tensor_scatter(b: Backward) -> Sequence[Tensor | None]:
    g, update, starts = b.grad(), b.input(1), b.optional(2)
    first = second = None
    if b.wants(0):
        first = b.emit("TensorScatter", [g, b.zeros(update.type), starts], b.attributes)
    if b.wants(1):
        axis = integer(b.attributes, "axis")
        if starts is None:
            second = b.part(g, axis, range(update.type.shape[axis]))
        else:
            steps = _steps(b, starts, axis)
            second = b.emit("GatherElements", [g, steps], {"axis": axis})
    return [first, second]


def _steps(b: Backward, starts: Tensor, axis: int) -> Tensor:
    """The step of the cache that each element of the update was written to."""
    shape, length = b.input(1).type.shape, b.input(0).type.shape[axis]
    ones = (1,) * (len(shape) - 1 - axis)
    offsets = b.constant(np.arange(shape[axis]).reshape(-1, *ones), DType.INT64)
    steps = b.add(b.reshape(starts, (shape[0], *(1,) * (len(shape) - 1))), offsets)
    if text(b.attributes, "mode") == "circular":
        steps = b.emit("Mod", [steps, b.constant(length, DType.INT64)], {"fmod": 0})
    return b.expand(steps, shape)


GRADIENTS: Final[dict[str, GradientRule]] = {
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "TensorScatter": _tensor_scatter,
}
