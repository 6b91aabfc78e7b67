"""Attention whose keys and values a program keeps, or of which data decides the number."""

from __future__ import annotations

from typing import Final

from popc.frontend.rules.onnx.attention import attended, heads_of
from popc.frontend.rules.sized.moves import appended, joined
from popc.frontend.rules.sized.node import SizedNode, SizedRule, sized
from popc.frontend.values import SizedValue, Value
from popc.ir import Tensor
from popc_runtime.errors import ModelError

__all__ = ["KEYS", "RULES", "for_all", "with_columns"]

KEYS: Final = 2  # the axis of keys in [batch, heads, keys, depth]


def _attention(node: SizedNode) -> list[Value | None]:
    """Keys behind those that count are not looked at."""
    if node.optional_value(6) is not None:
        raise node.refuse("takes lengths of samples where data decides the number of keys")
    q = heads_of(node, 0, "q_num_heads")
    k, v = (_with_past(node, index, index + 3) for index in (1, 2))
    if any(count for value in (k, v) for axis, count in enumerate(value.counts) if axis != KEYS):
        raise node.refuse("takes sizes that data decides for the number of keys only")
    looks_back = node.integer("is_causal", 0) or node.has("left_window_size")
    if looks_back and node.optional_value(4) is None:
        raise node.refuse("counts keys from the first where data decides their number")
    if node.wants_output(3):
        raise node.refuse("returns scores of keys of which data decides the number")
    count = node.same(node.count(k, KEYS), node.count(v, KEYS))
    mask, count = _mask(node, node.optional_value(3), k, count)
    batch = q.type.shape[0]
    (y,) = attended(node, [q, k.padded, v.padded, mask, for_all(node, count, batch)], 0)
    return [y, node.value_of(k.padded, k.counts), node.value_of(v.padded, v.counts)]


def for_all(node: SizedNode, count: Tensor, batch: int) -> Tensor:
    """A number of keys, for each sample: int64 [B]."""
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
    return appended(node, cache, new, KEYS) or sized(joined(node, [cache, new], KEYS))


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
    cut = with_columns(node, mask, keys.padded.type.shape[KEYS])
    return cut, node.same(count, node.count(mask, rank - 1))


def with_columns(node: SizedNode, mask: SizedValue, columns: int) -> Tensor:
    """A mask with so many columns, of which those that do not count are anything."""
    axis = len(mask.counts) - 1
    if mask.counts[axis] is None:
        return mask.padded
    return node.cropped(mask.padded, axis, columns)


RULES: Final[dict[str, SizedRule]] = {"Attention": _attention}
