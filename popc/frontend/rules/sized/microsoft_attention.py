"""Attention operators of com.microsoft on caches that a program keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.frontend.rules.microsoft import attention, group_query
from popc.frontend.rules.sized.attention import KEYS, for_all, with_columns
from popc.frontend.rules.sized.moves import appended, joined
from popc.frontend.rules.sized.node import SizedNode, SizedRule, sized
from popc.frontend.values import SizedValue, Value
from popc.ir import AttributeMap, Tensor

__all__ = ["RULES"]

_KEYS_AND_VALUES: Final = (1, 2)
_STACKED: Final = 3  # the axis of keys in [keys and values, batch, heads, keys, depth]


def _attention(node: SizedNode) -> list[Value | None]:
    """Keys and values lie in one cache."""
    q, *new = attention.packed_heads(node, attention.packed_projection(node))
    cache = _kept(node, 4, attention.stacked(node, new), _STACKED)
    keys, values = (attention.half(node, cache.padded, index) for index in (0, 1))
    y = _attended(node, [q, keys, values], (3, 5), node.count(cache, _STACKED))
    return [y, cache]


def _multi_head_attention(node: SizedNode) -> list[Value | None]:
    """Operands are projected already."""
    if any(isinstance(node.optional_value(index), SizedValue) for index in _KEYS_AND_VALUES):
        return _across(node)
    q, *new = attention.projected_heads(node)
    caches = [_kept(node, 6 + index, x, KEYS) for index, x in enumerate(new)]
    if node.wants_output(3):
        raise node.refuse("returns scores of keys of which data decides the number")
    padded = [cache.padded for cache in caches]
    return [_attended(node, [q, *padded], (4, 5), node.count(caches[0], KEYS)), *caches]


def _across(node: SizedNode) -> list[Value | None]:
    """Keys and values that data decides the number of, all of which are operands."""
    others = any(node.optional_value(index) is not None for index in (3, 6, 7, 8, 9))
    if others or node.integer("unidirectional", 0) or node.wants_output(3):
        raise node.refuse("has keys of a size that data decides beside a bias, a past or scores")
    pair = [node.sized(index) for index in _KEYS_AND_VALUES]
    axis = len(pair[0].counts) - 2
    if any(len(x.counts) != axis + 2 or any(_without(x.counts, axis)) for x in pair):
        raise node.refuse("takes sizes that data decides for the number of keys only")
    count = node.same(*(node.count(x, axis) for x in pair))
    columns = min(x.padded.type.shape[axis] for x in pair)
    heads = node.integer("num_heads")
    keys, values = (
        attention.split_heads(node, node.cropped(node.masked(x, 0), axis, columns), heads)
        for x in pair
    )
    q = attention.split_heads(node, node.input(0), heads)
    y = _attended(node, [q, keys, values], (4, 5), count)
    return [y, *(SizedValue(x, (None, None, count, None)) for x in (keys, values))]


def _without(counts: Sequence[Tensor | None], axis: int) -> list[Tensor | None]:
    return [*counts[:axis], *counts[axis + 1 :]]


def _kept(node: SizedNode, index: int, new: Tensor, axis: int) -> SizedValue:
    """The past that is an operand, with new rows: in place, if it is a cache."""
    fresh = SizedValue(new, (None,) * new.type.rank)
    if node.optional_value(index) is None:
        return fresh
    past = node.sized(index)
    return appended(node, past, fresh, axis) or sized(joined(node, [past, fresh], axis))


def _attended(node: SizedNode, qkv: list[Tensor], masks: tuple[int, int], count: Tensor) -> Tensor:
    """The result, by the operands that are a mask and what is added to scores."""
    columns = qkv[1].type.shape[KEYS]
    mask, added = (
        None if node.optional_value(i) is None else with_columns(node, node.sized(i), columns)
        for i in masks
    )
    bias = attention.score_bias(node, mask, added, qkv[0], columns)
    lengths = for_all(node, count, qkv[0].type.shape[0])
    return attention.attend(node, qkv, bias, lengths)[0]


def _group_query_attention(node: SizedNode) -> list[Value | None]:
    """New keys are written behind those of each sample, which may be fewer than the cache holds.

    In a prompt (as many queries as keys in all) they begin at 0.
    """
    if node.optional_value(12) is not None:
        raise node.refuse("keeps caches of integers")
    if node.integer("sliding_window_cache", 0):
        raise node.refuse("keeps a window of keys in a cache of which data decides the size")
    caches = [node.sized(index) for index in (3, 4)]
    batch = caches[0].padded.type.shape[0]
    rows = node.input(0).type.shape[1]
    starts = [cache.counts[KEYS] for cache in caches]
    if any(cache.padded not in node.importer.context.caches for cache in caches):
        raise node.refuse("takes a cache of a known size, or one that the program keeps")
    is_prompt = node.emit("Equal", [node.as_int64(node.scalar(6)), node.int64(rows)])
    lengths = group_query.lengths_of(node, batch)
    before = node.emit("Sub", [lengths, node.int64(rows)])
    before = node.emit("Where", [is_prompt, node.int64(0), before])
    seen = node.emit("Where", [is_prompt, node.int64(rows), lengths])
    column = node.emit("Reshape", [before], {"shape": (batch, 1)})
    positions = None
    if node.optional_value(9) is not None:
        positions = node.input(9)
        of_prompt = group_query.prompt_positions(node, positions)
        positions = node.emit("Where", [is_prompt, of_prompt, positions])
    q, *new = group_query.rotated_operands(node, column, positions)
    window: AttributeMap = {"axis": KEYS, "mode": "linear"}
    k, v = (
        node.emit("TensorScatter", [cache.padded, x, before], window)
        for cache, x in zip(caches, new, strict=True)
    )
    bias = None
    if node.optional_value(10) is not None:
        bias = with_columns(node, node.sized(10), k.type.shape[KEYS])
    if node.wants_output(3):
        raise node.refuse("returns scores of keys of which data decides the number")
    y = group_query.attended(node, [q, k, v], bias, seen)[0]
    return [y, *(_longer(node, x, start, rows) for x, start in zip((k, v), starts, strict=True))]


def _longer(node: SizedNode, cache: Tensor, start: Tensor | None, rows: int) -> Value:
    assert start is not None, "a cache that the program keeps"
    return SizedValue(cache, (None, None, node.add(start, node.int64(rows)), None))


RULES: Final[dict[str, SizedRule]] = {
    "Attention": _attention,
    "GroupQueryAttention": _group_query_attention,
    "MultiHeadAttention": _multi_head_attention,
}
