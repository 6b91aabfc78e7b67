"""Gradients of ScatterReduce, as PyTorch has them where several values meet in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Tensor
from popc.ir.attributes import integer, text

__all__ = ["GRADIENTS"]

_Gradients: TypeAlias = "tuple[Tensor | None, Tensor | None]"  # of data and initial values


def _read(b: Backward, table: Tensor) -> Tensor:
    """The element at the place of each element of the data."""
    data, indices = b.input(0), b.input(1)
    axis = integer(b.attributes, "axis") % data.type.rank
    if indices.type.rank == data.type.rank:
        return b.emit("GatherElements", [table, indices], {"axis": axis})
    if axis == 0:
        return b.emit("Gather", [table, indices], {"axis": 0})
    tuples = b.reshape(indices, (*indices.type.shape, 1))
    return b.emit("GatherND", [table, tuples], {"batch_dims": axis})


def _combined(b: Backward, data: Tensor, reduction: str, initial: Tensor | None = None) -> Tensor:
    """Other data, combined by the same indices."""
    attributes = {**b.attributes, "reduction": reduction}
    return b.emit("ScatterReduce", [data, b.input(1), initial], attributes)


def _sum(b: Backward) -> _Gradients:
    return _read(b, b.grad()) if b.wants(0) else None, b.grad()


def _replace(b: Backward) -> _Gradients:
    """Every element gets the gradient of its place: right as long as no two share it."""
    second = _combined(b, b.zeros(b.input(0).type), "none", b.grad()) if b.wants(2) else None
    return _read(b, b.grad()) if b.wants(0) else None, second


def _multiply(b: Backward) -> _Gradients:
    """The product of all other factors of the place; a zero factor must not be divided by."""
    g, data = b.grad(), b.input(0)
    first = None
    if b.wants(0):
        is_zero = b.emit("Equal", [data, b.scalar(0.0, data)])
        zero = b.cast(is_zero, data.type.dtype)
        factors = b.where(is_zero, b.scalar(1.0, data), data)
        product = _read(b, b.mul(g, _combined(b, factors, "mul", b.optional(2))))
        zeros = _read(b, _combined(b, zero, "sum"))
        alone = b.emit("Equal", [zeros, zero])  # no other factor is zero
        first = b.masked(alone, b.div(product, factors))
    return first, b.mul(g, _combined(b, data, "mul")) if b.wants(2) else None


def _extremum(b: Backward) -> _Gradients:
    """In equal shares to all values that equal the result of their place."""
    y, data, initial = b.output(), b.input(0), b.optional(2)
    theirs = b.cast(b.emit("Equal", [data, _read(b, y)]), y.type.dtype)
    mine = None if initial is None else b.cast(b.emit("Equal", [initial, y]), y.type.dtype)
    share = b.div(b.grad(), _combined(b, theirs, "sum", mine))
    first = b.mul(theirs, _read(b, share)) if b.wants(0) else None
    return first, b.mul(mine, share) if mine is not None and b.wants(2) else None


_REDUCTIONS: Final[dict[str, Callable[[Backward], _Gradients]]] = {
    "max": _extremum,
    "min": _extremum,
    "mul": _multiply,
    "none": _replace,
    "sum": _sum,
}


def _scatter_reduce(b: Backward) -> Sequence[Tensor | None]:
    first, second = _REDUCTIONS[text(b.attributes, "reduction")](b)
    return [first, None, second]


GRADIENTS: Final[dict[str, GradientRule]] = {"ScatterReduce": _scatter_reduce}
