"""Rotary embeddings of com.microsoft.

B, S, N, H: batch, rows, heads and their size; tables of cosines and sines have a row for each
position.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import standard_op
from popc.frontend.rules.microsoft.attention import join_heads, rotate, split_heads
from popc.frontend.rules.microsoft.operators import microsoft_domain, times
from popc.frontend.rules.moves import emit_reshape, emit_slice, emit_transpose
from popc.ir import Tensor
from popc_runtime.errors import ModelError

__all__ = ["RULES"]

_STREAMS: Final = 3  # of positions: time, height, width


def _rotary_embedding(node: Node) -> Tensor:
    """Operands: x, positions (or the first one), cosines, sines."""
    positions, tables = node.input(1), (node.input(2), node.input(3))
    split = _split(node, tables[0])
    batch, _, rows, _ = split.type.shape
    if positions.type.size == 1 and (batch, rows) != (1, 1):
        places = node.constant(node.positions(rows).reshape(1, -1), positions.type.dtype)
        positions = node.emit("Add", [emit_reshape(node, positions, (1, 1)), places])
    positions = node.emit("Expand", [positions], {"shape": (batch, rows)})
    return _joined(node, rotate(node, split, positions, tables, _size(node)))


def _by_three_positions(node: Node) -> Tensor:
    """Each column of the tables belongs to one of three positions [3, B, S] of a token."""
    tables, sections = (node.input(2), node.input(3)), node.integers("mrope_section")
    split, half = _split(node, tables[0]), tables[0].type.shape[1]
    if len(sections) != _STREAMS or min(sections) < 0 or sum(sections) != half:
        raise ModelError(f"mrope_section {list(sections)} does not divide {half} columns")
    layout = node.integer("mrope_layout", 0)
    if layout not in (0, 1):
        raise ModelError(f"mrope_layout is {layout}, not 0 or 1")
    columns = node.positions(half)
    if layout == 0:
        stream = np.repeat(np.arange(_STREAMS), sections)
    else:
        in_turn = columns % _STREAMS
        stream = np.where(columns < _STREAMS * np.array(sections)[in_turn], in_turn, 0)
    scale = node.number("scale", 1.0)
    cosine, sine = (times(node, _rows(node, table, stream), scale) for table in tables)
    attributes = {
        "interleaved": node.integer("interleaved", 0),
        "rotary_embedding_dim": _size(node) or 2 * half,
    }
    y = standard_op(node, "RotaryEmbedding", [split, cosine, sine], attributes)
    return _joined(node, y)


def _rows(
    node: Node, table: Tensor, stream: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> Tensor:
    """[B, S, half]: column c by the position number ``stream[c]`` of each token."""
    positions = node.input(1)
    rows = node.emit("Gather", [table, positions], {"axis": 0})
    every = [range(dim) for dim in rows.type.shape[1:]]
    parts = [
        emit_reshape(node, emit_slice(node, rows, [range(n, n + 1), *every]), rows.type.shape[1:])
        for n in range(_STREAMS)
    ]
    chosen = parts[0]
    for number in range(1, _STREAMS):
        if (stream == number).any():
            mine = node.constant(stream == number)
            chosen = node.emit("Where", [mine, parts[number], chosen])
    return chosen


def _size(node: Node) -> int:
    return node.integer("rotary_embedding_dim", 0)


def _split(node: Node, cosine: Tensor) -> Tensor:
    """Operand 0 as [B, N, S, H]."""
    x, heads = node.input(0), node.integer("num_heads", 0)
    if x.type.rank == 3 and heads == 0:
        heads = x.type.shape[2] // (2 * cosine.type.shape[1])
    return split_heads(node, x, heads)


def _joined(node: Node, y: Tensor) -> Tensor:
    """[B, N, S, H] in the shape of operand 0."""
    if node.input(0).type.rank == 4:
        return y
    return join_heads(node, emit_transpose(node, y, (0, 2, 1, 3)))


RULES: Final = microsoft_domain(
    {"MRotaryEmbedding": _by_three_positions, "RotaryEmbedding": _rotary_embedding}
)
