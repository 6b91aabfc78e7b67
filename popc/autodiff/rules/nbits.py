"""Gradients of products with matrices of few bits a number, which themselves have none.

What was rounded to 8 bits has the gradient of what it was before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Tensor
from popc.ir.attributes import integer
from popc_runtime.format import Attribute

__all__ = ["GRADIENTS"]


def _matmul(b: Backward) -> Sequence[Tensor | None]:
    """a @ ((numbers - zero points) * scales).T + bias; the matrix is [N, K]."""
    a, grad = b.input(0), b.grad()
    rows, columns = b.input(1).type.shape[0], integer(b.attributes, "K")
    first = scales = zeros = bias = None
    g = b.reshape(grad, (grad.type.size // max(rows, 1), rows))
    if b.wants(0):
        first = b.emit(
            "MatMulNBits",
            [grad, *(b.optional(index) for index in range(1, 5))],
            _transposed(b),
        )
    if b.wants(2) or b.wants(3):
        flat = b.reshape(a, (a.type.size // columns, columns))
        slopes = b.cast(b.emit("MatMul", [b.swapped(g), flat]), b.input(2).type.dtype)
        in_blocks = _blocks(b, columns)
        if b.wants(2):
            scales = b.emit("MatMul", [b.mul(slopes, _unscaled(b, rows)), in_blocks])
        if b.wants(3):
            sums = b.neg(b.mul(b.emit("MatMul", [slopes, in_blocks]), b.input(2)))
            zeros = b.cast(sums, b.input(3).type.dtype)
    if b.wants(5):
        bias = b.sum(g, [0])
    return [first, None, scales, zeros, None, bias]


def _unscaled(b: Backward, rows: int) -> Tensor:
    """The matrix as if all scales were one."""
    scale = b.input(2).type
    identity = b.constant(np.eye(rows), scale.dtype)
    operands = [identity, b.input(1), b.filled(1.0, scale), b.optional(3), b.optional(4)]
    return b.emit("MatMulNBits", operands, _transposed(b))


def _transposed(b: Backward) -> dict[str, Attribute]:
    """Attributes of the product with the transposed matrix, of which nothing is rounded."""
    kept = {name: value for name, value in b.attributes.items() if name != "rounded"}
    return {**kept, "transposed": 1}


def _blocks(b: Backward, columns: int) -> Tensor:
    """[K, blocks]: 1 where a column belongs to a block."""
    groups, type_ = b.optional(4), b.input(2).type
    blocks = type_.shape[1]
    if groups is None:
        of = np.arange(columns) // integer(b.attributes, "block_size")
        return b.constant(of[:, None] == np.arange(blocks), type_.dtype)
    values = b.constant([0, 1], type_.dtype)
    return b.emit("OneHot", [groups, values], {"axis": -1, "depth": blocks})


GRADIENTS: Final[dict[str, GradientRule]] = {"MatMulNBits": _matmul}
