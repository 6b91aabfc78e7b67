"""Attention whose keys and values a program keeps, or of which data decides the number."""

from __future__ import annotations

from typing import Final

from popc.frontend.rules.microsoft import group_query
from popc.frontend.rules.onnx.attention import attended, heads_of
from popc.frontend.rules.sized.moves import appended, joined
from popc.frontend.rules.sized.node import SizedNode, SizedRule, sized
from popc.frontend.values import SizedValue, Value
from popc.ir import AttributeMap, Tensor
from popc_runtime.errors import ModelError

__all__ = ["MICROSOFT", "RULES"]

_KEYS: Final = 2  # the axis of keys in [batch, heads, keys, depth]


def _attention(node: SizedNode) -> list[Value | None]:
    """Keys behind those that count are not looked at."""
    if node.optional_value(6) is not None:
        raise node.refuse("takes lengths of samples where data decides the number of keys")
    q = heads_of(node, 0, "q_num_heads")
    k, v = (_with_past(node, index, index + 3) for index in (1, 2))
    if any(count for value in (k, v) for axis, count in enumerate(value.counts) if axis != _KEYS):
        raise node.refuse("takes sizes that data decides for the number of keys only")
    looks_back = node.integer("is_causal", 0) or node.has("left_window_size")
    if looks_back and node.optional_value(4) is None:
        raise node.refuse("counts keys from the first where data decides their number")
    if node.wants_output(3):
        raise node.refuse("returns scores of keys of which data decides the number")
    count = node.same(node.count(k, _KEYS), node.count(v, _KEYS))
    mask, count = _mask(node, node.optional_value(3), k, count)
    batch = q.type.shape[0]
    (y,) = attended(node, [q, k.padded, v.padded, mask, _for_all(node, count, batch)], 0)
    return [y, node.value_of(k.padded, k.counts), node.value_of(v.padded, v.counts)]


def _for_all(node: SizedNode, count: Tensor, batch: int) -> Tensor:
    one = node.emit("Reshape", [count], {"shape": (1,)})
    return node.emit("Expand", [one], {"shape": (batch,)})


def _with_past(node: SizedNode, index: int, past: int) -> SizedValue:
    """Keys or values [B, H, T, D] behind those of the past, if there is one."""
    value = node.value(index)
    if isinstance(value, SizedValue) and len(value.counts) != 4:
        raise node.refuse("splits keys of which data decides the number into heads")
    new = value if isinstance(value, SizedValue) else sized(heads_of(node, index, "kv_num_heads"))
    if node.optional_value(past) is None:
        return new
    cache = node.sized(past)
    return appended(node, cache, new, _KEYS) or sized(joined(node, [cache, new], _KEYS))


def _mask(
    node: SizedNode, value: Value | None, keys: SizedValue, count: Tensor
) -> tuple[Tensor | None, Tensor]:
    """The mask with a column for each place of keys, and the number of keys that count."""
    if value is None:
        return None, count
    mask = sized(value)
    rank = len(mask.counts)
    if rank == 0 or any(mask.counts[:-1]):
        raise node.refuse("takes a mask of which data decides more than the number of columns")
    if mask.counts[-1] is None:
        if mask.padded.type.shape[-1] != 1:
            raise ModelError("a mask of a known size does not fit keys of which data decides it")
        return mask.padded, count
    columns = keys.padded.type.shape[_KEYS]
    cut = node.cropped(mask.padded, rank - 1, columns)
    return cut, node.same(count, node.count(mask, rank - 1))


def _group_query_attention(node: SizedNode) -> list[Value | None]:
    """New keys are written behind those of each sample, which may be fewer than the cache holds.

    In a prompt (as many queries as keys in all) they begin at 0.
    """
    caches = [node.sized(index) for index in (3, 4)]
    batch = caches[0].padded.type.shape[0]
    rows = node.input(0).type.shape[1]
    starts = [cache.counts[_KEYS] for cache in caches]
    if any(cache.padded not in node.importer.context.caches for cache in caches):
        raise node.refuse("takes a cache of a known size, or one that the program keeps")
    is_prompt = node.emit("Equal", [node.as_int64(node.scalar(6)), node.int64(rows)])
    lengths = group_query.lengths_of(node, batch)
    before = node.emit("Sub", [lengths, node.int64(rows)])
    before = node.emit("Where", [is_prompt, node.int64(0), before])
    seen = node.emit("Where", [is_prompt, node.int64(rows), lengths])
    column = node.emit("Reshape", [before], {"shape": (batch, 1)})
    q, *new = group_query.rotated_operands(node, column)
    window: AttributeMap = {"axis": _KEYS, "mode": "linear"}
    k, v = (
        node.emit("TensorScatter", [cache.padded, x, before], window)
        for cache, x in zip(caches, new, strict=True)
    )
    bias = None
    if node.optional_value(10) is not None:
        given = node.sized(10).padded
        bias = node.cropped(given, given.type.rank - 1, k.type.shape[_KEYS])
    y = group_query.attended(node, [q, k, v], bias, seen)
    return [y, *(_longer(node, x, start, rows) for x, start in zip((k, v), starts, strict=True))]


def _longer(node: SizedNode, cache: Tensor, start: Tensor | None, rows: int) -> Value:
    assert start is not None, "a cache that the program keeps"
    return SizedValue(cache, (None, None, node.add(start, node.int64(rows)), None))


RULES: Final[dict[str, SizedRule]] = {"Attention": _attention}
MICROSOFT: Final[dict[str, SizedRule]] = {"GroupQueryAttention": _group_query_attention}
