"""Layers that reduce, sort and search along axes."""

from __future__ import annotations

from typing import Final

from tools.campaigns.random_models.builder import Builder
from tools.campaigns.random_models.layers.common import Layer

__all__ = ["LAYERS"]

_KINDS = (
    *("ReduceSum", "ReduceMean", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2"),
    *("ReduceSumSquare", "ReduceLogSumExp"),
)


def _reduce(builder: Builder) -> None:
    x = builder.pick(lambda y: y.is_float and len(y.shape) > 0 and y.array.size > 0)
    axes = [axis for axis in range(len(x.shape)) if builder.chance(0.5)] or [len(x.shape) - 1]
    if builder.chance(0.3):
        axes = [axis - len(x.shape) for axis in axes]
    kind, keep = builder.choice(_KINDS), builder.number(0, 1)
    if builder.opset >= (13 if kind == "ReduceSum" else 18):
        builder.put(kind, [x.name, builder.ints(*axes)], keepdims=keep)
    else:
        builder.put(kind, [x.name], axes=axes, keepdims=keep)


def _softmax(builder: Builder) -> None:
    x = builder.pick(lambda y: y.is_float and len(y.shape) > 0)
    kind = builder.choice(["Softmax", "Softmax", "LogSoftmax"])
    builder.put(kind, [x.name], axis=builder.number(-len(x.shape), len(x.shape) - 1))


def _search(builder: Builder) -> None:
    x = builder.pick(lambda y: y.is_float and len(y.shape) > 0 and y.array.size > 0)
    axis = builder.number(0, len(x.shape) - 1)
    kind = builder.choice(["ArgMax", "ArgMin"])
    builder.put(kind, [x.name], axis=axis, keepdims=builder.number(0, 1))


def _best(builder: Builder) -> None:
    x = builder.pick(lambda y: y.is_float and len(y.shape) > 0 and y.array.size > 0)
    axis = builder.number(0, len(x.shape) - 1)
    count = builder.ints(builder.number(1, x.shape[axis]))
    values, _ = builder.emit("TopK", [x.name, count], 2, axis=axis, largest=builder.number(0, 1))
    builder.keep(values)


def _running_sum(builder: Builder) -> None:
    x = builder.pick(lambda y: y.is_float and len(y.shape) > 0)
    axis = builder.constant(builder.number(0, len(x.shape) - 1), "int64")
    flags = {"exclusive": builder.number(0, 1), "reverse": builder.number(0, 1)}
    builder.put("CumSum", [x.name, axis], **flags)


LAYERS: Final[tuple[Layer, ...]] = (
    *(_reduce, _reduce, _reduce, _softmax, _softmax, _search, _best, _running_sum),
)
