"""Matrix products, determinants and inverses.

MatMul and Gemm may carry what follows them: operands to add to the product (a bias that broadcasts
to it, then a residual of its shape) and an activation.  See `popc.ops.epilogue`.
"""

from __future__ import annotations

from typing import Final

from popc.ir import Shape, TensorType
from popc.ir.attributes import integer
from popc.ops.epilogue import check_activation, check_bias, check_residual
from popc.ops.infer import broadcast_shapes, check_rank, operand
from popc.ops.partials import check_partials
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["OPS"]


def _matmul(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """A, B, [bias], [residual]; shapes as numpy's ``@``."""
    a, b = operand(inputs, 0), operand(inputs, 1)
    _check_same_dtype(a, b)
    result = a.with_shape(_product_shape(a.shape, b.shape))
    check_bias(inputs, 2, result)
    check_residual(inputs, 3, result)
    check_activation(attributes)
    check_partials(attributes, result)
    return (result,)


def _product_shape(a: Shape, b: Shape) -> Shape:
    if not a or not b:
        raise ModelError("a matrix product needs operands of at least one dimension")
    left, right = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    if left[-1] != right[-2]:
        raise ModelError(f"shapes {list(a)} and {list(b)} do not match: {left[-1]} != {right[-2]}")
    batch = broadcast_shapes([left[:-2], right[:-2]])
    rows = left[-2:-1] if len(a) > 1 else ()
    columns = right[-1:] if len(b) > 1 else ()
    return (*batch, *rows, *columns)


def _gemm(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """alpha * A' @ B' + beta * C, with ' for an optional transpose; A, B, [C], [residual]."""
    a, b = operand(inputs, 0), operand(inputs, 1)
    check_rank(a, 2, "A")
    check_rank(b, 2, "B")
    _check_same_dtype(a, b)
    left = a.shape[::-1] if integer(attributes, "transA", 0) else a.shape
    right = b.shape[::-1] if integer(attributes, "transB", 0) else b.shape
    if left[1] != right[0]:
        raise ModelError(f"A has {left[1]} columns, but B has {right[0]} rows")
    result = a.with_shape((left[0], right[1]))
    check_bias(inputs, 2, result)
    check_residual(inputs, 3, result)
    check_activation(attributes)
    check_partials(attributes, result)
    return (result,)


def _check_same_dtype(a: TensorType, b: TensorType) -> None:
    if a.dtype is not b.dtype:
        raise ModelError(f"the operands are {a.dtype} and {b.dtype}, expected the same type")


def _det(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    del attributes
    x = operand(inputs, 0)
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise ModelError(f"a determinant needs square matrices, not {list(x.shape)}")
    return (x.with_shape(x.shape[:-2]),)


def _det_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The gradient of the determinants [...], and the matrices [..., n, n]."""
    g, x = operand(inputs, 0), operand(inputs, 1)
    if _det([x], attributes) != (g,):
        raise ModelError(f"{g} is not the type of the determinants of {x}")
    return (x,)


def _inverse(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    del attributes
    x = operand(inputs, 0)
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise ModelError(f"only square matrices have inverses, not {list(x.shape)}")
    return (x,)


OPS: Final[dict[str, OpSpec]] = {
    "Det": OpSpec(_det),
    "DetGrad": OpSpec(_det_grad),
    "Gemm": OpSpec(_gemm),
    "Inverse": OpSpec(_inverse),
    "MatMul": OpSpec(_matmul),
}
