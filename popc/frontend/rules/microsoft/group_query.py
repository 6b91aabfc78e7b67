"""GroupQueryAttention of com.microsoft: attention with fewer key heads and a cache of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.microsoft.attention import attend, rotate, split_heads
from popc.frontend.rules.microsoft.operators import microsoft_domain
from popc.frontend.rules.moves import emit_reshape
from popc.frontend.values import Value
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES", "attended", "lengths_of", "rotated_operands"]

_UNSUPPORTED: Final = (11, 12, 13, 14, 15)  # head sink, scales of a quantised cache, norms of q, k


def _group_query_attention(node: Node) -> list[Value | None]:
    """Sample b has seqlens_k[b] + 1 keys in all; its queries are the last of them.

    In a prompt (as many queries as keys in all) the queries start at 0 instead, and shorter
    samples are padded at the end.
    """
    q, k, v = _projections(node)
    batch, _, rows, _ = q.type.shape
    total = int(node.require_known(6, "the length of the keys").reshape(())[()])
    lengths = lengths_of(node, batch)
    before = node.constant(np.zeros((batch, 1)), DType.INT64)
    if rows != total:
        count = node.constant(rows, DType.INT64)
        before = emit_reshape(node, node.emit("Sub", [lengths, count]), (batch, 1))
    q, k = _rotated(node, q, k, before)
    k, v = (_cached(node, x, node.optional(index), before, total) for index, x in ((3, k), (4, v)))
    padded = rows != total or not node.integer("causal", 1)  # queries do not come before padding
    y = attended(node, [q, k, v], node.optional(10), lengths if padded else None)
    return [y, k, v]


def rotated_operands(node: Node, before: Tensor) -> list[Tensor]:
    """q [B, N, S, H], k and v [B, Nk, S, H], at their places behind the first ``before`` [B, 1]."""
    q, k, v = _projections(node)
    return [*_rotated(node, q, k, before), v]


def attended(
    node: Node, qkv: Sequence[Tensor], bias: Tensor | None, lengths: Tensor | None
) -> Tensor:
    """[B, S, N * H]; sample b has ``lengths[b]`` keys, and its queries are the last of them."""
    window = node.integer("local_window_size", -1)
    return attend(
        node,
        qkv,
        bias,
        lengths,
        causal=node.integer("causal", 1),
        left_window=window - 1 if window > 0 else -1,
        softcap=node.number("softcap", 0.0),
    )[0]


def lengths_of(node: Node, batch: int) -> Tensor:
    """int64 [batch]: how many keys each sample has."""
    last = node.emit("Cast", [node.input(5)], {"to": DType.INT64.value})
    return node.emit("Add", [emit_reshape(node, last, (batch,)), node.constant(1, DType.INT64)])


def _projections(node: Node) -> list[Tensor]:
    """The operands q [B, N, S, H] and k, v [B, Nk, S, H], or all side by side in operand 0."""
    if any(node.optional(index) is not None for index in _UNSUPPORTED):
        raise ModelError("a head sink, a quantised cache and normed queries are not supported")
    if node.integer("smooth_softmax", -1) > 0:
        raise ModelError("smooth_softmax is not supported")
    heads, kv_heads = node.integer("num_heads"), node.integer("kv_num_heads")
    q, k, v = node.input(0), node.optional(1), node.optional(2)
    if k is None or v is None:
        size = q.type.shape[2] // (heads + 2 * kv_heads)
        widths = (heads * size, kv_heads * size, kv_heads * size)
        q, k, v = node.emit_all("Split", [q], {"axis": 2, "split": widths})
    return [split_heads(node, x, n) for x, n in ((q, heads), (k, kv_heads), (v, kv_heads))]


def _rotated(node: Node, q: Tensor, k: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    if not node.integer("do_rotary", 0):
        return q, k
    rows = q.type.shape[2]
    places = node.emit("Add", [before, node.constant(node.positions(rows).reshape(1, rows))])
    positions = node.optional(9) or places
    tables = (node.input(7), node.input(8))
    return rotate(node, q, positions, tables), rotate(node, k, positions, tables)


def _cached(node: Node, new: Tensor, past: Tensor | None, before: Tensor, total: int) -> Tensor:
    """[B, Nk, T, H]: the keys of the past with the new ones written after the first ``before``."""
    if past is None or past.type.shape[2] == 0:
        return new
    batch, heads, kept, size = past.type.shape
    rows, length = new.type.shape[2], max(kept, total)
    both = node.emit("Concat", [past, new], {"axis": 2})
    places = node.constant(node.positions(length).reshape(1, length))
    # place t of the result holds the new key t - before, if there is one, else the old key t
    age = node.emit("Sub", [places, before])
    is_new = node.emit(
        "And",
        [
            node.emit("GreaterOrEqual", [age, node.constant(0)]),
            node.emit("Less", [age, node.constant(rows)]),
        ],
    )
    old = node.constant(np.minimum(node.positions(length), kept - 1).reshape(1, length))
    source = node.emit("Where", [is_new, node.emit("Add", [age, node.constant(kept)]), old])
    if batch == 1:
        return node.emit("Gather", [both, emit_reshape(node, source, (length,))], {"axis": 2})
    index = emit_reshape(node, source, (batch, 1, length, 1))
    index = node.emit("Expand", [index], {"shape": (batch, heads, length, size)})
    return node.emit("GatherElements", [both, index], {"axis": 2})


RULES: Final = microsoft_domain({"GroupQueryAttention": _group_query_attention})
