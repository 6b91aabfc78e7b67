"""GroupQueryAttention of com.microsoft: attention with fewer key heads and a cache of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import standard_op
from popc.frontend.rules.microsoft.attention import attend, rotate, split_heads
from popc.frontend.rules.microsoft.attention_window import rows_from, window_cache
from popc.frontend.rules.microsoft.cache_forms import cache_form
from popc.frontend.rules.microsoft.operators import microsoft_domain
from popc.frontend.rules.moves import emit_reshape, emit_slice
from popc.frontend.values import Value
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES", "attended", "lengths_of", "prompt_positions", "rotated_operands"]

_STAGES: Final = {1: 2, 2: 3}  # of scores: with their mask, and after softmax


def _group_query_attention(node: Node) -> list[Value | None]:
    """Sample b has seqlens_k[b] + 1 keys in all; its queries are the last of them.

    In a prompt (as many queries as keys in all) the queries start at 0 instead, and shorter
    samples are padded at the end.
    """
    if node.integer("sliding_window_cache", 0):
        return _with_window_caches(node)
    q, k, v = _projections(node)
    batch, _, rows, _ = q.type.shape
    total = int(node.require_known(6, "the length of the keys").reshape(())[()])
    lengths = lengths_of(node, batch)
    before = node.constant(np.zeros((batch, 1)), DType.INT64)
    if rows != total:
        count = node.constant(rows, DType.INT64)
        before = emit_reshape(node, node.emit("Sub", [lengths, count]), (batch, 1))
    given = node.optional(9)
    if given is not None and rows == total:
        given = prompt_positions(node, given)
    q, k = _rotated(node, q, k, before, given)
    forms = [cache_form(node, 12, "k_quant_type"), cache_form(node, 13, "v_quant_type")]
    caches = [
        _cached(node, form.stored(node, x), node.optional(index), before, total)
        for form, index, x in zip(forms, (3, 4), (k, v), strict=True)
    ]
    k, v = (form.read(node, x, q) for form, x in zip(forms, caches, strict=True))
    padded = rows != total or not node.integer("causal", 1)  # queries do not come before padding
    y, *scores = attended(node, [q, k, v], node.optional(10), lengths if padded else None)
    return [y, *caches, *(_without_hidden(node, x) for x in scores)]


def _with_window_caches(node: Node) -> list[Value | None]:
    """Queries see the keys that the caches hold, and the new ones behind them.

    The number of keys in all may be known at run time only: the caches do not grow with it.
    """
    q, k, v = _projections(node)
    batch, _, rows, _ = q.type.shape
    pasts = [node.input(index) for index in (3, 4)]
    known = node.known(6)
    total = None if known is None else int(known.reshape(())[()])
    window = window_cache(node, pasts[0].type.shape[2], total)
    count = node.constant(rows, DType.INT64)
    whole = node.emit("Cast", [node.input(6)], {"to": DType.INT64.value})
    is_prompt = node.emit("Equal", [emit_reshape(node, whole, ()), count])
    lengths = lengths_of(node, batch)
    before = node.emit("Sub", [lengths, count])
    before = node.emit("Where", [is_prompt, node.constant(0, DType.INT64), before])
    given = node.optional(9)
    if given is not None:
        given = node.emit("Where", [is_prompt, prompt_positions(node, given), given])
    q, k = _rotated(node, q, k, emit_reshape(node, before, (batch, 1)), given)
    forms = [cache_form(node, 12, "k_quant_type"), cache_form(node, 13, "v_quant_type")]
    keys = [form.stored(node, x) for form, x in zip(forms, (k, v), strict=True)]
    held = window.resident(node, before)
    if rows != total:
        column = emit_reshape(node, held, (batch, 1))
        most = window.capacity if total is None else min(window.capacity, total - rows)
        keys = [
            _written(node, x, past, column, most + rows)
            for x, past in zip(keys, pasts, strict=True)
        ]
    seen = node.emit("Add", [held, count])
    k, v = (form.read(node, x, q) for form, x in zip(forms, keys, strict=True))
    y, *scores = attended(node, [q, k, v], node.optional(10), seen)
    last = node.emit("Where", [is_prompt, lengths, seen])
    kept = window.resident(node, lengths)
    caches = [window.latest(node, x, last, kept) for x in keys]
    return [y, *caches, *(_without_hidden(node, x) for x in scores)]


def _without_hidden(node: Node, scores: Tensor) -> Tensor:
    """Scores that are returned: zero where a query sees no key."""
    hidden = node.emit("IsInf", [scores], {"detect_negative": 1, "detect_positive": 0})
    return node.emit("Where", [hidden, node.constant(0.0, scores.type.dtype), scores])


def prompt_positions(node: Node, positions: Tensor) -> Tensor:
    """Positions [B, S] of a prompt: the first of all is read, and the others follow it."""
    first = emit_slice(node, positions, [range(1), range(1)])
    places = node.constant(node.positions(positions.type.shape[1]).reshape(1, -1))
    following = node.emit("Add", [first, places])
    return node.emit("Expand", [following], {"shape": positions.type.shape})


def rotated_operands(node: Node, before: Tensor, given: Tensor | None) -> list[Tensor]:
    """q [B, N, S, H], k and v [B, Nk, S, H], at their places behind the first ``before`` [B, 1].

    Or at those that are ``given``.
    """
    q, k, v = _projections(node)
    return [*_rotated(node, q, k, before, given), v]


def attended(
    node: Node, qkv: Sequence[Tensor], bias: Tensor | None, lengths: Tensor | None
) -> list[Tensor]:
    """[B, S, N * H]; sample b has ``lengths[b]`` keys, and its queries are the last of them.

    Then the scores, if they are wanted.
    """
    window = node.integer("local_window_size", -1)
    return attend(
        node,
        qkv,
        bias,
        lengths,
        _sinks(node, qkv[0]),
        causal=node.integer("causal", 1),
        left_window=window - 1 if window > 0 else -1,
        softcap=node.number("softcap", 0.0),
        scores=_stage(node) if node.wants_output(3) else -1,
    )


def _sinks(node: Node, q: Tensor) -> Tensor | None:
    """A score of each head that softmax counts beside those of keys: given, or 0."""
    sinks = node.optional(11)
    if sinks is None and node.integer("smooth_softmax", -1) > 0:
        heads = node.integer("num_heads")
        node.require_room(heads)
        sinks = node.constant(np.zeros(heads), q.type.dtype)
    return sinks


def _stage(node: Node) -> int:
    """The stage of `popc.ops.attention` whose scores are a result."""
    stage = node.integer("qk_output", 0)
    if stage not in _STAGES:
        raise ModelError(f"qk_output is {stage}, not 1 or 2, but the scores are read")
    return _STAGES[stage]


def lengths_of(node: Node, batch: int) -> Tensor:
    """int64 [batch]: how many keys each sample has."""
    last = node.emit("Cast", [node.input(5)], {"to": DType.INT64.value})
    return node.emit("Add", [emit_reshape(node, last, (batch,)), node.constant(1, DType.INT64)])


def _projections(node: Node) -> list[Tensor]:
    """The operands q [B, N, S, H] and k, v [B, Nk, S, H], or all side by side in operand 0."""
    heads, kv_heads = node.integer("num_heads"), node.integer("kv_num_heads")
    q, k, v = node.input(0), node.optional(1), node.optional(2)
    if k is None or v is None:
        size = q.type.shape[2] // (heads + 2 * kv_heads)
        widths = (heads * size, kv_heads * size, kv_heads * size)
        q, k, v = node.emit_all("Split", [q], {"axis": 2, "split": widths})
    split = [split_heads(node, x, n) for x, n in ((q, heads), (k, kv_heads), (v, kv_heads))]
    return [_normed(node, split[0], 14), _normed(node, split[1], 15), split[2]]


def _normed(node: Node, x: Tensor, index: int) -> Tensor:
    """Heads after an RMSNormalization, if there is a weight for it."""
    weight = node.optional(index)
    if weight is None:
        return x
    attributes = {"epsilon": node.number("qk_norm_epsilon", 1e-6)}
    return standard_op(node, "RMSNormalization", [x, weight], attributes)


def _rotated(
    node: Node, q: Tensor, k: Tensor, before: Tensor, given: Tensor | None
) -> tuple[Tensor, Tensor]:
    if not node.integer("do_rotary", 0):
        return q, k
    rows = q.type.shape[2]
    positions = given
    if positions is None:
        places = node.constant(node.positions(rows).reshape(1, rows))
        positions = node.emit("Add", [before, places])
    tables = (node.input(7), node.input(8))
    return rotate(node, q, positions, tables), rotate(node, k, positions, tables)


def _cached(node: Node, new: Tensor, past: Tensor | None, before: Tensor, total: int) -> Tensor:
    """[B, Nk, T, H]: the keys of the past with the new ones written after the first ``before``."""
    if past is None or past.type.shape[2] == 0:
        return new
    return _written(node, new, past, before, max(past.type.shape[2], total))


def _written(node: Node, new: Tensor, past: Tensor, before: Tensor, room: int) -> Tensor:
    """[B, Nk, room, H]: old keys, and new ones after the first ``before`` [B, 1]."""
    kept, rows = past.type.shape[2], new.type.shape[2]
    both = node.emit("Concat", [past, new], {"axis": 2})
    places = node.constant(node.positions(room).reshape(1, room))
    # place t of the result holds the new key t - before, if there is one, else the old key t
    age = node.emit("Sub", [places, before])
    is_new = node.emit(
        "And",
        [
            node.emit("GreaterOrEqual", [age, node.constant(0)]),
            node.emit("Less", [age, node.constant(rows)]),
        ],
    )
    old = node.constant(np.minimum(node.positions(room), kept - 1).reshape(1, room))
    source = node.emit("Where", [is_new, node.emit("Add", [age, node.constant(kept)]), old])
    return rows_from(node, both, source)


RULES: Final = microsoft_domain({"GroupQueryAttention": _group_query_attention})
