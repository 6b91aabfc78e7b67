"""Weights packed into 2, 4 or 8 bits: MatMulNBits, GatherBlockQuantized, MatMulBnb4.

The archive holds the packed form, and so does the memory of a program but for MatMulBnb4, whose
numbers are looked up when it is loaded.
"""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.microsoft.operators import microsoft_domain
from popc.frontend.rules.moves import emit_reshape, emit_slice, emit_transpose
from popc.ir import Shape, Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES"]

_INT8: Final = 4  # accuracy_level: the first factor may be rounded to 8 bits


def _matmul_nbits(node: Node) -> Tensor:
    """The product a @ w.T, where w [N, K] has a scale and zero point for each block of a row.

    ``accuracy_level`` is the least accuracy: with that of int8, blocks of a are rounded to 8 bits.
    """
    a = node.input(0)
    bits, block = node.integer("bits", 4), node.integer("block_size")
    rows, columns = node.integer("N"), node.integer("K")
    if bits not in (2, 4, 8) or block < 1:
        raise ModelError(f"weights of {bits} bits in blocks of {block} are not supported")
    blocks = -(-columns // block)
    packed = emit_reshape(node, node.input(1), (rows, blocks, block * bits // 8))
    scale = emit_reshape(node, node.input(2), (rows, blocks))
    zero, groups = node.optional(3), node.optional(4)
    if zero is not None:
        is_packed = zero.type.dtype is DType.UINT8
        zero = emit_reshape(node, zero, (rows, -(-blocks * bits // 8) if is_packed else blocks))
    if groups is not None:  # each column names its block
        groups = emit_slice(node, groups, [range(columns)])
    attributes = {"bits": bits, "block_size": block, "K": columns}
    if node.integer("accuracy_level", 0) == _INT8 and groups is None and not block & (block - 1):
        attributes["rounded"] = 1
    return node.emit("MatMulNBits", [a, packed, scale, zero, groups, node.optional(5)], attributes)


def _unpacked(node: Node, packed: Tensor, bits: int, columns: int) -> Tensor:
    """The first ``columns`` fields of uint8 elements, low bits first, along the last dimension."""
    *outer, width = packed.type.shape
    rows, count = prod(outer), 8 // bits
    if count == 1:
        return packed
    flat = emit_reshape(node, packed, (rows, width))
    mask = node.constant((1 << bits) - 1, DType.UINT8)
    fields = []
    for index in range(count):
        shift = node.constant(index * bits, DType.UINT8)
        shifted = node.emit("BitShift", [flat, shift], {"direction": "RIGHT"})
        field = node.emit("BitwiseAnd", [shifted, mask])
        fields.append(emit_reshape(node, field, (*field.type.shape, 1)))
    joined = node.emit("Concat", fields, {"axis": 2})
    whole = emit_reshape(node, joined, (rows, width * count))
    narrowed = emit_slice(node, whole, [range(rows), range(columns)])
    return emit_reshape(node, narrowed, (*outer, columns))


def _zero_points(node: Node, packed: Tensor | None, bits: int, shape: Shape) -> Tensor:
    """Zero points as bytes; those that are absent are in the middle."""
    if packed is not None:
        return _unpacked(node, packed, bits, shape[-1])
    node.require_room(prod(shape))
    return node.constant(np.full(shape, 1 << (bits - 1)), DType.UINT8)


def _gather_block_quantized(node: Node) -> Tensor:
    """Parts of a table of packed weights, dequantised once they are gathered.

    Where an index is outside of the table there are zeros.
    """
    table, index, scale = (node.input(position) for position in range(3))
    bits, block = node.integer("bits", 4), node.integer("block_size", 128)
    rank = table.type.rank
    axis = normal_axis(node.integer("gather_axis", 0), rank)
    along = normal_axis(node.integer("quantize_axis", 1), rank)
    narrow = table.type.dtype is DType.INT8  # elements of four bits, as bytes
    if not narrow and (table.type.dtype is not DType.UINT8 or axis != 0 or along == 0):
        raise ModelError(
            f"tables of uint8, int4 and uint4 can be gathered, of uint8 by rows, not {table.type} "
            f"along axis {axis} in blocks along axis {along}"
        )
    if axis == along:  # parts of blocks
        whole = _dequantized(node, (table, scale, node.optional(3)), along, block)
        return _with_zeros(node, _gathered(node, whole, axis), axis)
    quantized, scales = (_gathered(node, x, axis) for x in (table, scale))
    zero = node.optional(3)
    zero = None if zero is None else _gathered(node, zero, axis)
    if not narrow:
        zero = _zero_points(node, zero, bits, scales.type.shape)
        quantized = _unpacked(node, quantized, bits, table.type.shape[-1] * 8 // bits)
    place = along if along < axis else along - 1 + index.type.rank
    return _with_zeros(node, _dequantized(node, (quantized, scales, zero), place, block), axis)


def _dequantized(
    node: Node, operands: tuple[Tensor, Tensor, Tensor | None], axis: int, block: int
) -> Tensor:
    attributes = {"axis": axis, "block_size": block, "dtype": operands[1].type.dtype.value}
    return node.emit("DequantizeLinear", operands, attributes)


def _gathered(node: Node, x: Tensor, axis: int) -> Tensor:
    """``x`` by the indices that there are, and by 0 for others."""
    index = node.input(1)
    known, size = node.known(1), node.input(0).type.shape[axis]
    if known is None or (known.size and not -size <= known.min() <= known.max() < size):
        inside = _inside(node, size)
        index = node.emit("Where", [inside, index, node.constant(0, index.type.dtype)])
    return node.emit("Gather", [x, index], {"axis": axis})


def _with_zeros(node: Node, y: Tensor, axis: int) -> Tensor:
    """``y``, but zeros where an index is outside."""
    known, size = node.known(1), node.input(0).type.shape[axis]
    if known is not None and (not known.size or -size <= known.min() <= known.max() < size):
        return y
    index = node.input(1)
    shape = (*index.type.shape, *(1,) * (y.type.rank - axis - index.type.rank))
    inside = emit_reshape(node, _inside(node, size), shape)
    return node.emit("Where", [inside, y, node.constant(0.0, y.type.dtype)])


def _inside(node: Node, size: int) -> Tensor:
    index = node.input(1)
    least, most = (node.constant(number, index.type.dtype) for number in (-size, size))
    bounds = [
        node.emit("GreaterOrEqual", [index, least]),
        node.emit("Less", [index, most]),
    ]
    return node.emit("And", bounds)


# -- tables of numbers -----------------------------------------------------------------------------

# What codes of four bits stand for (QLoRA, and bitsandbytes' FP4 and NF4)
_FP4: Final = (0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
_NF4: Final = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
_TABLES: Final = {0: (*_FP4, *(-number for number in _FP4)), 1: _NF4}


def _matmul_bnb4(node: Node) -> Tensor:
    """a @ w.T, or a @ w, of w [N, K]: codes, the high half of a byte first, times their block's."""
    a, packed, largest = (node.input(index) for index in range(3))
    rows, columns, block = (node.integer(name) for name in ("N", "K", "block_size"))
    kind, count = node.integer("quant_type"), rows * columns
    blocks = -(-count // max(block, 1))
    if kind not in _TABLES or block < 1 or largest.type.size != blocks:
        raise ModelError(f"codes of type {kind} in {largest.type.size} blocks of {block}")
    if packed.type.dtype is not DType.UINT8 or packed.type.size != -(-count // 2):
        raise ModelError(f"{packed.type} does not hold {count} codes of four bits")
    pairs = emit_reshape(node, packed, (packed.type.size, 1))
    shifts = node.constant([4, 0], DType.UINT8)
    halves = node.emit("BitShift", [pairs, shifts], {"direction": "RIGHT"})
    codes = node.emit("BitwiseAnd", [halves, node.constant(15, DType.UINT8)])
    codes = node.emit("Cast", [codes], {"to": DType.INT32.value})
    table = node.constant(_TABLES[kind], a.type.dtype)
    numbers = node.emit("Gather", [table, codes], {"axis": 0})
    spread = node.emit(
        "Expand", [emit_reshape(node, largest, (blocks, 1))], {"shape": (blocks, block)}
    )
    flat = [
        emit_slice(node, emit_reshape(node, x, (x.type.size,)), [range(count)])
        for x in (numbers, spread)
    ]
    weights = emit_reshape(node, node.emit("Mul", flat), (rows, columns))
    if node.integer("transB", 1):
        weights = emit_transpose(node, weights, (1, 0))
    return node.emit("MatMul", [a, weights])


RULES: Final = microsoft_domain(
    {
        "GatherBlockQuantized": _gather_block_quantized,
        "MatMulBnb4": _matmul_bnb4,
        "MatMulNBits": _matmul_nbits,
    }
)
