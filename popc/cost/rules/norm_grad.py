"""Gradients of normalisation."""

from __future__ import annotations

from math import prod
from typing import Final

from popc.cost.planner import Dims
from popc.cost.rules.common import CostRule, channel_dims, layer_sizes, row_dims
from popc.cost.work import Work

__all__ = ["RULES"]


def _gradient(work: Work, dims: Dims, by_channel: Dims) -> None:
    """Whitened input again; gradients of scale and bias; two sums by group; three terms."""
    x = work.input()
    groups = prod(size for size, reduced in dims if not reduced)
    work.spread(groups, x.size, x.dtype)
    work.scaled("add", rows=groups)
    work.scaled("add", rows=groups)
    work.binary("add", size=x.size, dtype=x.dtype)
    work.reduce(by_channel, x.dtype, kinds=2)
    work.reduce(dims, x.dtype, kinds=2)
    work.spread(groups, x.size, x.dtype)
    work.scaled("add", rows=groups)
    work.binary("add", "add", size=x.size, dtype=x.dtype)


def _channels(work: Work) -> None:
    dims = channel_dims(work)
    _gradient(work, dims, dims)


def _rows(work: Work) -> None:
    rows, length = layer_sizes(work.input().shape, work.integer("axis", -1))
    _gradient(work, ((rows, False), (length, True)), ((rows, True), (length, False)))


def _groups(work: Work) -> None:
    x = work.input()
    groups = x.shape[0] * work.integer("num_groups", x.shape[1])
    _gradient(work, row_dims(x.size, groups), channel_dims(work))


def _local(work: Work) -> None:
    x = work.input()
    work.binary(*["add"] * min(2 * work.integer("size", 1), 32), size=x.size, dtype=x.dtype)
    work.binary("power", "divide", "add", size=x.size, dtype=x.dtype)


RULES: Final[dict[str, CostRule]] = {
    "BatchNormalizationGrad": _channels,
    "GroupNormalizationGrad": _groups,
    "InstanceNormalizationGrad": _groups,
    "LRNGrad": _local,
    "LayerNormalizationGrad": _rows,
    "RMSNormalizationGrad": _rows,
}
