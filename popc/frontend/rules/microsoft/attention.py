"""Attention operators of com.microsoft, as IR ``Attention`` with everything around it explicit.

B, S, T: batch, queries, keys; N, H: heads and their size; P: keys of the past.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import standard_op
from popc.frontend.rules.microsoft.operators import microsoft_domain, plus
from popc.frontend.rules.moves import emit_reshape, emit_slice, emit_transpose
from popc.frontend.values import Value
from popc.ir import AttributeMap, Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = [
    "RULES",
    "attend",
    "attend_packed",
    "half",
    "join_heads",
    "multi_head_attention",
    "packed_heads",
    "packed_projection",
    "projected_heads",
    "rotate",
    "score_bias",
    "split_heads",
    "stacked",
    "with_bias",
]

_MASKED: Final = -10000.0  # added to the scores of masked keys unless the node says otherwise


def split_heads(node: Node, x: Tensor, heads: int) -> Tensor:
    """[B, S, N * H] -> [B, N, S, H]; a 4-D operand is taken as it is."""
    if x.type.rank == 4:
        return x
    if x.type.rank != 3 or heads < 1 or x.type.shape[2] % heads:
        raise ModelError(f"{x.type} cannot be split into {heads} heads")
    batch, rows, width = x.type.shape
    split = emit_reshape(node, x, (batch, rows, heads, width // heads))
    return emit_transpose(node, split, (0, 2, 1, 3))


def join_heads(node: Node, x: Tensor) -> Tensor:
    """[B, S, N, H] -> [B, S, N * H]."""
    batch, rows, heads, size = x.type.shape
    return emit_reshape(node, x, (batch, rows, heads * size))


def attend(
    node: Node,
    qkv: Sequence[Tensor],
    bias: Tensor | None,
    lengths: Tensor | None = None,
    sinks: Tensor | None = None,
    **attributes: float,
) -> list[Tensor]:
    """[B, S, N * H] (and the scores, if asked for) of q, k and v with heads split."""
    scale = node.number("scale", 0.0) or 1.0 / sqrt(max(qkv[0].type.shape[3], 1))
    defaults: AttributeMap = {
        "scale": scale,
        "causal": node.integer("unidirectional", 0),
        "left_window": -1,
        "right_window": -1,
        "softcap": 0.0,
        "offset": 0,
        "scores": -1,
        "heads_last": 1,
    }
    operands = [*qkv, bias, lengths, sinks]
    y, *scores = node.emit_all("Attention", operands, {**defaults, **attributes})
    return [join_heads(node, y), *scores]


# -- masks -----------------------------------------------------------------------------------------


def _bias(node: Node, visible: Tensor | None, added: Tensor | None, dtype: DType) -> Tensor | None:
    """The bias of the scores: the operand for it, and a large negative number where masked.

    The number is finite: a row without any visible key attends to all keys alike.
    """
    if visible is None:
        return added
    hidden = node.number("mask_filter_value", _MASKED)
    values = [node.constant(value, dtype) for value in (0.0, hidden)]
    return plus(node, node.emit("Where", [visible, *values]), added)


def _visible(node: Node, mask: Tensor | None, rows: int, keys: int, batch: int) -> Tensor | None:
    """bool, broadcasting to [B, N, S, T], from any of the forms of mask (ONNX Runtime docs).

    [B]: keys per sample. [2 * B]: ends and then starts. [B, T], [B, S, T]: a flag for each key.
    [B, 1, M, M]: flags for a longer sequence, whose last rows are the queries.
    """
    if mask is None:
        return None
    shape = mask.type.shape
    if mask.type.rank == 1:
        return _visible_range(node, mask, keys, batch)
    if mask.type.rank == 2:
        mask = emit_reshape(node, mask, (shape[0], 1, 1, shape[1]))
    elif mask.type.rank == 3:
        mask = emit_reshape(node, mask, (shape[0], 1, *shape[1:]))
    elif keys <= shape[3]:
        windows = [range(shape[0]), range(shape[1]), range(keys - rows, keys), range(keys)]
        mask = emit_slice(node, mask, windows)
    if mask.type.shape[3] not in (1, keys):
        raise ModelError(f"a mask of shape {list(shape)} does not fit {keys} keys")
    if mask.type.dtype is DType.BOOL:
        return mask
    return node.emit("Cast", [mask], {"to": DType.BOOL.value})


def _visible_range(node: Node, mask: Tensor, keys: int, batch: int) -> Tensor:
    """From [B] ends, or [2 * B] ends and starts."""
    if mask.type.size not in (batch, 2 * batch):
        raise ModelError(f"a mask of {mask.type.size} lengths does not fit a batch of {batch}")
    positions = node.constant(node.positions(keys), mask.type.dtype)
    parts = [
        emit_reshape(node, emit_slice(node, mask, [range(start, start + batch)]), (batch, 1, 1, 1))
        for start in range(0, mask.type.size, batch)
    ]
    visible = node.emit("Less", [positions, parts[0]])
    if len(parts) == 1:
        return visible
    return node.emit("And", [visible, node.emit("GreaterOrEqual", [positions, parts[1]])])


# -- Attention -------------------------------------------------------------------------------------


def _attention(node: Node) -> list[Value | None]:
    """One product gives q, k and v."""
    packed = packed_projection(node)
    return attend_packed(node, packed, node.optional(3), node.optional(4), node.optional(5))


def packed_projection(node: Node) -> Tensor:
    """[B, S, q and k and v side by side]."""
    if node.integer("do_rotary", 0) or node.optional(6) is not None:
        raise ModelError("rotary embedding and shared key buffers are not supported here")
    projected = node.emit("MatMul", [node.input(0), node.input(1)])
    return plus(node, projected, node.optional(2))


def attend_packed(
    node: Node, packed: Tensor, mask: Tensor | None, past: Tensor | None, added: Tensor | None
) -> list[Value | None]:
    """Attention of [B, S, q and k and v side by side]; returns the result and [2, B, N, T, H]."""
    q, *present = packed_heads(node, packed)
    offset = 0
    if past is not None:
        offset = past.type.shape[3]
        old = (half(node, past, index) for index in (0, 1))
        present = [
            node.emit("Concat", pair, {"axis": 2}) for pair in zip(old, present, strict=True)
        ]
    rows = q.type.shape[2]
    bias = score_bias(node, mask, added, q, rows + offset)
    (y,) = attend(node, [q, *present], bias, offset=offset)
    return [y, stacked(node, present) if node.wants_output(1) else None]


def packed_heads(node: Node, packed: Tensor) -> list[Tensor]:
    """q, k and v [B, N, S, H] of what lies side by side."""
    widths = node.integers("qkv_hidden_sizes", ()) or (packed.type.shape[-1] // 3,) * 3
    parts = node.emit_all("Split", [packed], {"axis": 2, "split": widths})
    return [split_heads(node, part, node.integer("num_heads")) for part in parts]


def score_bias(
    node: Node, mask: Tensor | None, added: Tensor | None, q: Tensor, keys: int
) -> Tensor | None:
    """The bias of the scores of q [B, N, S, H] with as many keys, by a mask and what is added."""
    batch, _, rows, _ = q.type.shape
    return _bias(node, _visible(node, mask, rows, keys, batch), added, q.type.dtype)


def half(node: Node, past: Tensor, index: int) -> Tensor:
    """Keys (0) or values (1) of [2, B, N, P, H]."""
    shape = past.type.shape
    windows = [range(index, index + 1), *(range(dim) for dim in shape[1:])]
    return emit_reshape(node, emit_slice(node, past, windows), shape[1:])


def stacked(node: Node, parts: Sequence[Tensor]) -> Tensor:
    """[2, B, N, T, H] of keys and values."""
    rows = [emit_reshape(node, part, (1, *part.type.shape)) for part in parts]
    return node.emit("Concat", rows, {"axis": 0})


# -- MultiHeadAttention ----------------------------------------------------------------------------


def multi_head_attention(node: Node) -> list[Value | None]:
    """Operands are projected already; 3-D or with heads split, or packed."""
    q, k, v = projected_heads(node)
    offset = 0
    past = [node.optional(index) for index in (6, 7)]
    if past[0] is not None and past[1] is not None:
        offset = past[0].type.shape[2]
        k = node.emit("Concat", [past[0], k], {"axis": 2})
        v = node.emit("Concat", [past[1], v], {"axis": 2})
    bias = score_bias(node, node.optional(4), node.optional(5), q, k.type.shape[2])
    stage = 0 if node.wants_output(3) else -1
    y, *scores = attend(node, [q, k, v], bias, offset=offset, scores=stage)
    return [y, k, v, *scores]


def projected_heads(node: Node) -> list[Tensor]:
    """q, k and v of MultiHeadAttention with their heads split."""
    if node.optional(8) is not None or node.optional(9) is not None:
        raise ModelError("the length of the past is given for buffers of a known size only")
    heads = node.integer("num_heads")
    parts = with_bias(node, _unpacked(node), node.optional(3))
    return [split_heads(node, x, heads) for x in parts]


def _unpacked(node: Node) -> list[Tensor]:
    """q, k and v, from the packed [B, S, N, 3, H] or [B, T, N, 2, H] too."""
    q, k, v = node.input(0), node.optional(1), node.optional(2)
    if q.type.rank == 5:
        return _unstacked(node, q)
    if k is not None and k.type.rank == 5:
        return [q, *_unstacked(node, k)]
    if k is None or v is None:
        raise ModelError("key and value are required unless they are packed")
    return [q, k, v]


def _unstacked(node: Node, packed: Tensor) -> list[Tensor]:
    """[B, S, N, count, H] -> [B, S, N * H], as many as there are."""
    batch, rows, heads, count, size = packed.type.shape
    parts = node.emit_all("Split", [packed], {"axis": 3, "split": (1,) * count})
    return [emit_reshape(node, part, (batch, rows, heads * size)) for part in parts]


def with_bias(node: Node, parts: list[Tensor], bias: Tensor | None) -> list[Tensor]:
    """Each of q, k and v plus its share of the bias, where it has 3 dimensions."""
    if bias is None:
        return parts
    heads = node.integer("num_heads")
    widths = tuple(_width(part, heads) for part in parts)
    shares = node.emit_all("Split", [bias], {"axis": 0, "split": widths})
    return [
        plus(node, part, share) if part.type.rank == 3 else part
        for part, share in zip(parts, shares, strict=True)
    ]


def _width(part: Tensor, heads: int) -> int:
    return part.type.shape[-1] if part.type.rank == 3 else heads * part.type.shape[-1]


# -- rotary embedding ------------------------------------------------------------------------------


def rotate(
    node: Node, x: Tensor, positions: Tensor, tables: tuple[Tensor, Tensor], size: int = 0
) -> Tensor:
    """Rotary embedding of [B, N, S, H] at positions [B, S], by tables of cosines and sines."""
    attributes = {
        "interleaved": node.integer("interleaved", 0) or node.integer("rotary_interleaved", 0),
        "rotary_embedding_dim": size or 2 * tables[0].type.shape[1],
    }
    return standard_op(node, "RotaryEmbedding", [x, *tables, positions], attributes)


RULES: Final = microsoft_domain({"Attention": _attention})
