"""Reductions, orders and running sums: padding counts for nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from popc.frontend.rules.common import integers_of
from popc.frontend.rules.sized.node import SizedNode, SizedRule
from popc.frontend.values import Value
from popc.ir import Tensor
from popc.ops.infer import normal_axis
from popc_runtime.format import DType

__all__ = ["RULES"]

# The element that counts for nothing, for a type.
_Neutral = Callable[[DType], Any]


def _number(value: int) -> _Neutral:
    return lambda dtype: np.bool_(value) if dtype is DType.BOOL else value


def _lowest(dtype: DType) -> Any:
    if dtype is DType.BOOL:
        return np.bool_(0)
    return -np.inf if dtype.is_float else np.iinfo(dtype.storage).min


def _highest(dtype: DType) -> Any:
    if dtype is DType.BOOL:
        return np.bool_(1)
    return np.inf if dtype.is_float else np.iinfo(dtype.storage).max


def _reduce(neutral: _Neutral) -> SizedRule:
    def rule(node: SizedNode) -> Value:
        value = node.sized(0)
        axes = _axes(node, len(value.counts))
        x = node.masked(value, neutral(value.padded.type.dtype), axes)
        (result,) = node.plain([x, *node.tensors_behind(1)])
        return _reduced(node, result, value.counts, axes)

    return rule


def _axes(node: SizedNode, rank: int) -> tuple[int, ...]:
    axes = integers_of(node, 1, "axes", "the set of reduced axes")
    if not axes:
        return () if node.integer("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({normal_axis(axis, rank) for axis in axes}))


def _reduced(
    node: SizedNode, result: Tensor, counts: Sequence[Tensor | None], axes: Sequence[int]
) -> Value:
    if node.integer("keepdims", 1):
        left = [None if axis in axes else count for axis, count in enumerate(counts)]
    else:
        left = [count for axis, count in enumerate(counts) if axis not in axes]
    return node.value_of(result, left)


def _mean(node: SizedNode) -> Value:
    """The sum over the number of elements that count."""
    value = node.sized(0)
    axes = _axes(node, len(value.counts))
    dtype = value.padded.type.dtype
    x = node.masked(value, 0, axes)
    keepdims = node.integer("keepdims", 1)
    total = node.emit("ReduceSum", [x], {"axes": axes, "keepdims": keepdims})
    count = node.int64(1)
    for axis in axes:
        count = node.mul(count, node.count(value, axis))
    result = node.emit("Div", [total, node.emit("Cast", [count], {"to": dtype.value})])
    return _reduced(node, result, value.counts, axes)


def _arg(neutral: _Neutral) -> SizedRule:
    """The first of the best: padding lies behind, and is never better."""

    def rule(node: SizedNode) -> Value:
        value = node.sized(0)
        axis = normal_axis(node.integer("axis", 0), len(value.counts))
        if value.counts[axis] is not None and node.integer("select_last_index", 0):
            raise node.refuse("selects the last index along an axis whose size data decides")
        x = node.masked(value, neutral(value.padded.type.dtype), [axis])
        (result,) = node.plain([x])
        return _reduced(node, result, value.counts, [axis])

    return rule


def _along_axis(fill: _Neutral) -> SizedRule:
    def rule(node: SizedNode) -> Value:
        value = node.sized(0)
        rank = len(value.counts)
        axis = normal_axis(node.integer("axis", 1 if node.version < 13 else -1), rank)
        if node.version < 13 and axis != rank - 1 and any(value.counts[axis:]):
            raise node.refuse("before opset 13 takes several axes as one")
        (result,) = node.plain([node.masked(value, fill(value.padded.type.dtype), [axis])])
        return node.value_of(result, value.counts)

    return rule


def _accumulate(neutral: _Neutral) -> SizedRule:
    """A running sum; padding makes a difference only from the end."""

    def rule(node: SizedNode) -> Value:
        value = node.sized(0)
        fill = neutral(value.padded.type.dtype)
        x = node.masked(value, fill) if node.integer("reverse", 0) else value.padded
        (result,) = node.plain([x, *node.tensors_behind(1)])
        return node.value_of(result, value.counts)

    return rule


def _top_k(node: SizedNode) -> list[Value]:
    """Padding comes last: it is no better than anything, and of equals the first is taken."""
    value = node.sized(0)
    axis = normal_axis(node.integer("axis", -1), len(value.counts))
    size, most = node.count(value, axis), value.padded.type.shape[axis]
    wanted = node.int64(node.integer("k")) if node.version < 10 else node.as_int64(node.scalar(1))
    if node.table.compare(node.table.scalar(wanted), node.table.scalar(size))[1] > 0:
        room = node.add(size, node.int64(1))
        wanted = node.emit("PlacesWithin", [wanted, room], {"padding": 0})
    count, bound = node.planned(wanted, most)
    largest = bool(node.integer("largest", 1))
    dtype = value.padded.type.dtype
    # NaNs are larger than everything.
    worst = _lowest(dtype) if largest else np.nan if dtype.is_float else _highest(dtype)
    settings = {"axis": axis, "k": bound, "largest": int(largest)}
    results = node.emit_all("TopK", [node.masked(value, worst, [axis])], settings)
    counts = [*value.counts[:axis], count, *value.counts[axis + 1 :]]
    return [node.value_of(result, counts) for result in results]


RULES: Final[dict[str, SizedRule]] = {
    "ArgMax": _arg(_lowest),
    "ArgMin": _arg(_highest),
    "CumProd": _accumulate(_number(1)),
    "CumSum": _accumulate(_number(0)),
    "Hardmax": _along_axis(_lowest),
    "LogSoftmax": _along_axis(_lowest),
    "ReduceL1": _reduce(_number(0)),
    "ReduceL2": _reduce(_number(0)),
    "ReduceLogSum": _reduce(_number(0)),
    "ReduceLogSumExp": _reduce(_lowest),
    "ReduceMax": _reduce(_lowest),
    "ReduceMean": _mean,
    "ReduceMin": _reduce(_highest),
    "ReduceProd": _reduce(_number(1)),
    "ReduceSum": _reduce(_number(0)),
    "ReduceSumSquare": _reduce(_number(0)),
    "Softmax": _along_axis(_lowest),
    "TopK": _top_k,
}
