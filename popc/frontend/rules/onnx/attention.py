"""Attention and rotary embedding.  FlexAttention is imported by ONNX's function body."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import converted, default_domain, reshaped
from popc.frontend.values import Value
from popc.ir import AttributeMap, Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES", "attended", "heads_of"]


def _attention(node: Node) -> list[Value | None]:
    """3-D operands are split into heads, past keys and values are put in front of the new ones."""
    q = heads_of(node, 0, "q_num_heads")
    k = _with_past(node, heads_of(node, 1, "kv_num_heads"), 4)
    v = _with_past(node, heads_of(node, 2, "kv_num_heads"), 5)
    past = node.optional(4)
    lengths = node.optional(6)
    if lengths is not None:
        lengths = converted(node, lengths, DType.INT64)
    operands = [q, k, v, _mask(node, q, k), lengths]
    y, *scores = attended(node, operands, 0 if past is None else past.type.shape[2])
    return [y, k, v, *scores]


def attended(node: Node, operands: Sequence[Tensor | None], offset: int) -> list[Tensor]:
    """The result, in the form of the queries, and perhaps scores, of operands of ``Attention``."""
    q = operands[0]
    assert q is not None
    flat = node.input(0).type.rank == 3
    attributes = {**_attributes(node, q, offset), "heads_last": int(flat)}
    y, *scores = node.emit_all("Attention", operands, attributes)
    if flat:
        batch, rows, heads, depth = y.type.shape
        y = reshaped(node, y, (batch, rows, heads * depth))
    return [y, *scores]


def _attributes(node: Node, q: Tensor, offset: int) -> AttributeMap:
    default_scale = 1.0 / sqrt(max(q.type.shape[3], 1))
    return {
        "scale": node.number("scale", default_scale),
        "causal": node.integer("is_causal", 0),
        "left_window": node.integer("left_window_size", -1),
        "right_window": node.integer("right_window_size", -1),
        "softcap": node.number("softcap", 0.0),
        "offset": offset,
        "scores": node.integer("qk_matmul_output_mode", 0) if node.wants_output(3) else -1,
    }


def heads_of(node: Node, index: int, name: str) -> Tensor:
    """[B, S, H * D] -> [B, H, S, D]."""
    x = node.input(index)
    if x.type.rank == 4:
        return x
    if x.type.rank != 3:
        raise ModelError(f"input {index} must have 3 or 4 dimensions, not {x.type.rank}")
    heads = node.integer(name)
    batch, rows, width = x.type.shape
    if heads < 1 or width % heads:
        raise ModelError(f"input {index}: {width} columns cannot be split into {heads} heads")
    split = reshaped(node, x, (batch, rows, heads, width // heads))
    return node.emit("Transpose", [split], {"perm": (0, 2, 1, 3)})


def _with_past(node: Node, x: Tensor, index: int) -> Tensor:
    past = node.optional(index)
    return x if past is None else node.emit("Concat", [past, x], {"axis": 2})


def _mask(node: Node, q: Tensor, k: Tensor) -> Tensor | None:
    """The mask with as many columns as there are keys: missing ones are hidden."""
    mask = node.optional(3)
    if mask is None:
        return None
    if mask.type.dtype is not DType.BOOL:
        mask = converted(node, mask, q.type.dtype)
    columns = mask.type.shape[-1] if mask.type.rank else 1
    missing = k.type.shape[2] - columns
    if missing <= 0 or (columns == 1 and node.version < 24):
        return mask
    hidden = False if mask.type.dtype is DType.BOOL else -np.inf
    shape = (*mask.type.shape[:-1], missing)
    value = node.constant(hidden, mask.type.dtype)
    rest = node.emit("Expand", [value], {"shape": shape})
    return node.emit("Concat", [mask, rest], {"axis": mask.type.rank - 1})


def _rotary_embedding(node: Node) -> Tensor:
    """Positions select rows of the tables; heads are an axis of their own while rotating."""
    x, cosine, sine = (node.input(index) for index in range(3))
    positions = node.optional(3)
    if positions is not None:
        tables = (node.emit("Gather", [table, positions], {"axis": 0}) for table in (cosine, sine))
        cosine, sine = tables
    shape = x.type.shape
    if x.type.rank == 3:
        heads = node.integer("num_heads")
        if heads < 1 or shape[2] % heads:
            raise ModelError(f"{shape[2]} columns cannot be split into {heads} heads")
        x = reshaped(node, x, (*shape[:2], heads, shape[2] // heads))
    axis = 2 if len(shape) == 3 else 1
    size = node.integer("rotary_embedding_dim", 0) or x.type.shape[-1]
    if cosine.type.shape[-1] != size // 2:
        raise ModelError(f"cos has {cosine.type.shape[-1]} columns, {size // 2} are needed")
    cosine, sine = (_unsqueezed(node, table, axis) for table in (cosine, sine))
    attributes: AttributeMap = {"interleaved": node.integer("interleaved", 0)}
    return reshaped(node, node.emit("RotaryEmbedding", [x, cosine, sine], attributes), shape)


def _unsqueezed(node: Node, x: Tensor, axis: int) -> Tensor:
    shape = x.type.shape
    return reshaped(node, x, (*shape[:axis], 1, *shape[axis:]))


RULES: Final = default_domain(
    {
        "Attention": _attention,
        "RotaryEmbedding": _rotary_embedding,
    }
)
