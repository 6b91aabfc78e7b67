"""Gradients of matrix products, determinants and inverses."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Tensor
from popc.ir.attributes import integer, number

__all__ = ["GRADIENTS"]


def _matmul(b: Backward) -> Sequence[Tensor | None]:
    """G @ B.T and A.T @ G, summed over the dimensions in which an operand was repeated."""
    a, other = b.input(0), b.input(1)
    left = b.reshape(a, (1, *a.type.shape)) if a.type.rank == 1 else a
    right = b.reshape(other, (*other.type.shape, 1)) if other.type.rank == 1 else other
    batch = b.grad().type.shape[: b.grad().type.rank - (a.type.rank > 1) - (other.type.rank > 1)]
    rows, columns = left.type.shape[-2], right.type.shape[-1]
    g = b.reshape(b.grad(), (*batch, rows, columns))
    if right.type.rank == 2 and left.type.rank > 2:  # one matrix times many: sum in the product
        summed = prod(batch)
        flat = b.reshape(left, (summed * rows, left.type.shape[-1]))
        stacked = b.reshape(g, (summed * rows, columns))
    else:
        flat, stacked = left, g
    first = second = None
    if b.wants(0):
        first = b.emit("MatMul", [g, b.swapped(right)])
        first = b.reshape(b.sum_to(first, left.type), a.type.shape)
    if b.wants(1):
        second = b.emit("MatMul", [b.swapped(flat), stacked])
        second = b.reshape(b.sum_to(second, right.type), other.type.shape)
    return [first, second]


def _gemm(b: Backward) -> Sequence[Tensor | None]:
    """alpha * G @ B'.T and alpha * A'.T @ G, transposed if the operand was; beta * G."""
    g, a, other = b.grad(), b.input(0), b.input(1)
    turned_a, turned_b = integer(b.attributes, "transA", 0), integer(b.attributes, "transB", 0)
    alpha, beta = (number(b.attributes, name, 1.0) for name in ("alpha", "beta"))

    def product(left: Tensor, right: Tensor, turn_left: int, turn_right: int) -> Tensor:
        attributes = {"transA": turn_left, "transB": turn_right, "alpha": alpha, "beta": 1.0}
        return b.emit("Gemm", [left, right], attributes)

    first = second = third = None
    if b.wants(0):
        first = product(other, g, turned_b, 1) if turned_a else product(g, other, 0, 1 - turned_b)
    if b.wants(1):
        second = product(g, a, 1, turned_a) if turned_b else product(a, g, 1 - turned_a, 0)
    if b.wants(2):
        third = b.sum_to(b.scaled(g, beta), b.input(2).type)
    return [first, second, third]


def _det(b: Backward) -> Sequence[Tensor | None]:
    """G times the cofactors, which exist for singular matrices too."""
    return [b.grad_op(b.input(0))]


def _inverse(b: Backward) -> Sequence[Tensor | None]:
    """-Y.T @ G @ Y.T."""
    turned = b.swapped(b.output())
    return [b.neg(b.emit("MatMul", [b.emit("MatMul", [turned, b.grad()]), turned]))]


GRADIENTS: Final[dict[str, GradientRule]] = {
    "Det": _det,
    "Gemm": _gemm,
    "Inverse": _inverse,
    "MatMul": _matmul,
}
