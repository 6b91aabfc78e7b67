"""Products with matrices that are stored in 2, 4 or 8 bits a number.

`popc_runtime.kernels.nbits` says what the operands are.
"""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer
from popc.ops.infer import FLOATS, one_dtype, operand, optional_operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]

_WIDTHS: Final = (2, 4, 8)  # bits: those that divide a byte
_BLOCK_STEP: Final = 16  # weights: of 2 bits, a whole word of 32


def _matmul(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """a @ w.T + bias of w [N, K]; ``transposed``: a @ w."""
    a, packed, scale = (operand(inputs, index) for index in range(3))
    bits, block, columns = (integer(attributes, name) for name in ("bits", "block_size", "K"))
    if bits not in _WIDTHS:
        raise ModelError(f"weights of {bits} bits are not supported: 2, 4 and 8 are")
    if block < _BLOCK_STEP or block % _BLOCK_STEP:
        raise ModelError(f"blocks are multiples of {_BLOCK_STEP}, not {block}")
    has_groups = optional_operand(inputs, 4) is not None
    if integer(attributes, "rounded", 0) and (block & (block - 1) or has_groups):
        raise ModelError("only blocks of a power of two that follow each other are rounded")
    if columns < 1:
        raise ModelError(f"K must be positive, not {columns}")
    blocks, rows = -(-columns // block), packed.shape[0] if packed.rank else 0
    _check(packed, (DType.UINT8,), (rows, blocks, block * bits // 8), "weights")
    _check(scale, FLOATS, (rows, blocks), "scales")
    _check_zero_points(inputs, bits, rows, blocks)
    groups, bias = optional_operand(inputs, 4), optional_operand(inputs, 5)
    if groups is not None:
        _check(groups, (DType.INT32,), (columns,), "groups")
    turned = integer(attributes, "transposed", 0)
    depth, width = (rows, columns) if turned else (columns, rows)
    if bias is not None:
        _check(bias, (a.dtype,), (width,), "bias")
    one_dtype([a], FLOATS)
    if a.rank < 1 or a.shape[-1] != depth:
        raise ModelError(f"rows of {list(a.shape)} do not have the {depth} numbers of the weights")
    return (a.with_shape((*a.shape[:-1], width)),)


def _check_zero_points(inputs: OperandTypes, bits: int, rows: int, blocks: int) -> None:
    zero = optional_operand(inputs, 3)
    if zero is not None and zero.dtype is DType.UINT8:
        _check(zero, (DType.UINT8,), (rows, -(-blocks * bits // 8)), "zero points")
    elif zero is not None:
        _check(zero, FLOATS, (rows, blocks), "zero points")


def _check(
    type_: TensorType,
    dtypes: tuple[DType, ...] | frozenset[DType],
    shape: tuple[int, ...],
    what: str,
) -> None:
    if type_.dtype not in dtypes:
        raise ModelError(f"the {what} must be {' or '.join(sorted(dtypes))}, not {type_.dtype}")
    if type_.shape != shape:
        raise ModelError(f"the {what} must be of shape {list(shape)}, not {list(type_.shape)}")


OPS: Final[dict[str, OpSpec]] = {"MatMulNBits": OpSpec(_matmul)}
