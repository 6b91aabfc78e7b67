"""Normalisation: statistics, whitening, scale and bias (popnn's sequences)."""

from __future__ import annotations

from math import prod
from typing import Final

from popc.cost.mapping import device_bytes
from popc.cost.planner import Dims
from popc.cost.rules.common import CostRule, channel_dims, layer_sizes, row_dims
from popc.cost.work import Work

__all__ = ["RULES", "normalise"]


def normalise(work: Work, dims: Dims, channels: int, *, affine: bool) -> None:
    """Statistics along those of the axes ``dims`` that are reduced, and what follows from them.

    Sums and sums of squares are found together; then come the inverse deviation, a fused
    (x - mean) * deviation, and scale and bias for each of ``channels`` channels.
    """
    x = work.input()
    groups = prod(size for size, reduced in dims if not reduced)
    work.reduce(dims, x.dtype, kinds=2)
    work.unary("invert_variance", size=groups, dtype=x.dtype)
    work.spread(groups, x.size, x.dtype)
    work.scaled("add", rows=groups)
    work.scaled("add", rows=groups)
    if affine:
        scale_and_shift(work, channels)


def scale_and_shift(work: Work, channels: int) -> None:
    """x * scale + bias, by channel."""
    share = work.share_of_result()
    bytes_ = 2 * min(share, channels) * device_bytes(work.result().dtype)
    work.receive("scale and bias", bytes_, sources=4)
    work.scaled("add", rows=min(channels, work.result().size))
    work.scaled("add", rows=min(channels, work.result().size))


def _inference(work: Work) -> None:
    """Statistics are given: they and scale and bias combine to one scale and one shift."""
    channels = work.input().shape[1]
    work.unary("invert_variance", size=channels)
    work.binary("add", "add", "add", size=channels)
    scale_and_shift(work, channels)


def _batch(work: Work) -> None:
    normalise(work, channel_dims(work), work.input().shape[1], affine=True)


def _instance(work: Work) -> None:
    x = work.input()
    normalise(work, row_dims(x.size, x.shape[0] * x.shape[1]), x.shape[1], affine=True)


def _group(work: Work) -> None:
    x = work.input()
    groups = x.shape[0] * work.integer("num_groups", 1)
    normalise(work, row_dims(x.size, groups), x.shape[1], affine=True)


def _layer(work: Work) -> None:
    rows, length = layer_sizes(work.input().shape, work.integer("axis", -1))
    normalise(work, ((rows, False), (length, True)), length, affine=True)


def _rms(work: Work) -> None:
    x = work.input()
    rows, length = layer_sizes(x.shape, work.integer("axis", -1))
    work.reduce(((rows, False), (length, True)), x.dtype)
    work.unary("rsqrt", size=rows)
    work.spread(rows, x.size, x.dtype)
    work.scaled("add", rows=rows)
    scale_and_shift(work, length)


def _local(work: Work) -> None:
    work.unary("square")
    work.receive("neighbours", work.share_of_result() * device_bytes(work.result().dtype))
    work.binary(*["add"] * min(work.integer("size", 1), 16))
    work.binary("power", "divide")


RULES: Final[dict[str, CostRule]] = {
    "BatchNormalization": _inference,
    "BatchNormalizationTraining": _batch,
    "GroupNormalization": _group,
    "InstanceNormalization": _instance,
    "LRN": _local,
    "LayerNormalization": _layer,
    "RMSNormalization": _rms,
}
