"""Weights packed into 2, 4 or 8 bits: com.microsoft.MatMulNBits and GatherBlockQuantized.

The archive and the memory of a program hold the packed form.
"""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.microsoft.operators import microsoft_domain
from popc.frontend.rules.moves import emit_reshape, emit_slice
from popc.ir import Shape, Tensor
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


def _unpacked(node: Node, packed: Tensor, bits: int, shape: Shape) -> Tensor:
    """The fields of uint8 elements, low bits first, in rows of (at least) ``shape[1]``."""
    rows, columns = shape
    count = 8 // bits
    packed = emit_reshape(node, packed, (rows, packed.type.size // max(rows, 1)))
    if count == 1:
        return packed
    mask = node.constant((1 << bits) - 1, DType.UINT8)
    fields = []
    for index in range(count):
        shift = node.constant(index * bits, DType.UINT8)
        shifted = node.emit("BitShift", [packed, shift], {"direction": "RIGHT"})
        field = node.emit("BitwiseAnd", [shifted, mask])
        fields.append(emit_reshape(node, field, (*field.type.shape, 1)))
    joined = node.emit("Concat", fields, {"axis": 2})
    whole = emit_reshape(node, joined, (rows, packed.type.shape[1] * count))
    return emit_slice(node, whole, [range(rows), range(columns)])


def _zero_points(node: Node, packed: Tensor | None, bits: int, shape: Shape) -> Tensor:
    """Zero points as bytes; those that are absent are in the middle."""
    if packed is not None:
        return _unpacked(node, packed, bits, shape)
    node.require_room(prod(shape))
    return node.constant(np.full(shape, 1 << (bits - 1)), DType.UINT8)


def _gather_block_quantized(node: Node) -> Tensor:
    """Rows of a table [rows, columns] of packed weights, dequantised once they are gathered."""
    table, index, scale = (node.input(position) for position in range(3))
    bits, block = node.integer("bits", 4), node.integer("block_size", 128)
    axes = node.integer("gather_axis", 0) % 2, node.integer("quantize_axis", 1) % 2
    narrow = table.type.dtype is DType.INT8  # elements of four bits, as bytes
    if table.type.rank != 2 or not (narrow or table.type.dtype is DType.UINT8) or axes != (0, 1):
        raise ModelError(
            f"only rows of uint8, int4 and uint4 tables can be gathered, not axes {axes} of {table}"
        )
    count, columns = index.type.size, table.type.shape[1] * (1 if narrow else 8 // bits)
    flat = emit_reshape(node, index, (count,))
    quantized = node.emit("Gather", [table, flat], {"axis": 0})
    scale = node.emit("Gather", [scale, flat], {"axis": 0})
    zero = node.optional(3)
    if zero is not None:
        zero = node.emit("Gather", [zero, flat], {"axis": 0})
    if not narrow:
        zero = _zero_points(node, zero, bits, scale.type.shape)
        quantized = _unpacked(node, quantized, bits, (count, columns))
    attributes = {"axis": 1, "block_size": block, "dtype": scale.type.dtype.value}
    rows = node.emit("DequantizeLinear", [quantized, scale, zero], attributes)
    return emit_reshape(node, rows, (*index.type.shape, columns))


RULES: Final = microsoft_domain(
    {
        "GatherBlockQuantized": _gather_block_quantized,
        "MatMulNBits": _matmul_nbits,
    }
)
