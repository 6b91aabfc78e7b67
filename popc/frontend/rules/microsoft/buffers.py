"""Attention on buffers of keys and values that are longer than what they hold.

B, S, N, H: batch, queries, heads and their size; M: the places of a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.microsoft.attention import (
    attend,
    multi_head_attention,
    score_bias,
    split_heads,
    with_bias,
)
from popc.frontend.rules.microsoft.operators import microsoft_domain
from popc.frontend.rules.moves import emit_reshape, emit_slice
from popc.frontend.values import Value
from popc.ir import AttributeMap, Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES"]

_KEYS: Final = 2  # axis of keys in a buffer


def _multi_head_attention(node: Node) -> list[Value | None]:
    """MultiHeadAttention; with the length of the past, operands of the past are buffers."""
    if node.optional(8) is None:
        return multi_head_attention(node)
    heads = node.integer("num_heads")
    parts = with_bias(node, [node.input(index) for index in range(3)], node.optional(3))
    qkv = [split_heads(node, part, heads) for part in parts]
    return _in_buffers(node, qkv, (6, 7, 8, 9), (4, 5))


def _decoder_masked(node: Node) -> list[Value | None]:
    """A single query: of keys in buffers, or of keys that an encoder has made."""
    heads, q = node.integer("num_heads"), node.input(0)
    k, v = node.optional(1), node.optional(2)
    if k is None or v is None:
        width = q.type.shape[2] // 3
        q, k, v = node.emit_all("Split", [q], {"axis": 2, "split": (width,) * 3})
    parts = with_bias(node, [q, k, v], node.optional(10))
    q, k, v = (split_heads(node, part, heads) for part in parts)
    if node.optional(5) is not None:
        if not node.integer("past_present_share_buffer", 0) or node.optional(7) is None:
            raise ModelError("past_present_share_buffer and past_sequence_length are required")
        return _in_buffers(node, [q, k, v], (5, 6, 7, 9), (3, 4))
    bias = score_bias(node, node.optional(3), node.optional(4), q, k.type.shape[_KEYS])
    y, *scores = attend(node, [q, k, v], bias, scores=0 if node.wants_output(3) else -1)
    return [y, k, v, *scores]


def _in_buffers(
    node: Node, qkv: Sequence[Tensor], places: tuple[int, int, int, int], masks: tuple[int, int]
) -> list[Value | None]:
    """The result, and both buffers with the new keys and values.

    ``places`` are the operands that are buffers, how much they hold, and whose each key is;
    ``masks`` those of the mask, and of what is added to scores.
    """
    q, *new = qkv
    batch, rows = q.type.shape[0], q.type.shape[2]
    if rows != 1 and node.optional(places[3]) is not None:
        raise ModelError(f"cache_indirection is for a single query of a sample, not {rows}")
    held = node.emit("Cast", [node.input(places[2])], {"to": DType.INT64.value})
    held = emit_reshape(node, held, (1,))
    before = node.emit("Expand", [held], {"shape": (batch,)})
    attributes: AttributeMap = {"axis": _KEYS, "mode": "linear"}
    buffers = [
        node.emit("TensorScatter", [node.input(place), x, before], attributes)
        for place, x in zip(places[:2], new, strict=True)
    ]
    seen = [_of_beams(node, x, node.optional(places[3]), held) for x in buffers]
    length = buffers[0].type.shape[_KEYS]
    mask, added = (_lengthened(node, node.optional(place), length) for place in masks)
    bias = score_bias(node, mask, added, q, length)
    lengths = node.emit("Add", [before, node.constant(rows)])
    stage = 0 if node.wants_output(3) else -1
    y, *scores = attend(node, [q, *seen], bias, lengths, scores=stage)
    return [y, *buffers, *(_held_scores(node, x, places[2], rows) for x in scores)]


def _held_scores(node: Node, scores: Tensor, place: int, rows: int) -> Tensor:
    """Scores of the keys that there are."""
    count = int(node.require_known(place, "the number of scores").reshape(())[()]) + rows
    return emit_slice(node, scores, [*(range(dim) for dim in scores.type.shape[:3]), range(count)])


def _lengthened(node: Node, x: Tensor | None, columns: int) -> Tensor | None:
    """A mask, or what is added to scores, with a column for each place of a buffer.

    Those that come in addition are of no consequence: nothing is held there.
    """
    if x is None or x.type.rank < 2 or x.type.shape[-1] in (1, columns):
        return x
    shape = (*x.type.shape[:-1], columns - x.type.shape[-1])
    if shape[-1] < 0:
        raise ModelError(f"a mask {x.type} is longer than buffers of {columns} keys")
    rest = node.constant(np.zeros(shape), x.type.dtype)
    return node.emit("Concat", [x, rest], {"axis": x.type.rank - 1})


def _of_beams(node: Node, x: Tensor, whose: Tensor | None, held: Tensor) -> Tensor:
    """A buffer [B, N, M, H] in which each beam of a sample finds its past with some beam.

    ``whose`` [samples, beams, M] tells it for the ``held`` places that were there before.
    """
    if whose is None:
        return x
    samples, beams, length = whose.type.shape
    batch, heads, places, size = x.type.shape
    if samples * beams != batch or length != places:
        raise ModelError(f"cache_indirection {whose.type} does not fit buffers {x.type}")
    own = node.constant(node.positions(beams).reshape(1, beams, 1), whose.type.dtype)
    is_past = node.emit("Less", [node.constant(node.positions(places)), held])
    index = node.emit("Where", [is_past, whose, own])
    index = emit_reshape(node, index, (samples, beams, 1, places, 1))
    shape = (samples, beams, heads, places, size)
    index = node.emit("Expand", [index], {"shape": shape})
    found = node.emit("GatherElements", [emit_reshape(node, x, shape), index], {"axis": 1})
    return emit_reshape(node, found, x.type.shape)


RULES: Final = microsoft_domain(
    {
        "DecoderMaskedMultiHeadAttention": _decoder_masked,
        "MultiHeadAttention": _multi_head_attention,
    }
)
