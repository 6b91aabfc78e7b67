"""Convolutions and pools along axes whose size data decides: padding is taken for theirs.

A window of the result reads what counts, and zeros (for maxima: the lowest number) behind it,
whether they are the padding of the operator or that of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

import numpy as np

from popc.frontend.rules.sized.node import SizedNode, SizedRule
from popc.frontend.values import SizedValue, Value
from popc.ir import Tensor

__all__ = ["RULES"]

# The size of a result along a spatial axis, from that of the operand and the number of the axis.
_NewSize = Callable[[SizedNode, Tensor, int, int], Tensor]


def _require_images(node: SizedNode, x: SizedValue) -> None:
    if len(x.counts) < 2 or x.counts[1] is not None:
        raise node.refuse("takes sizes that data decides along other axes than channels only")


def _windows(
    node: SizedNode, fill: float | Tensor, kernel: Sequence[int], new_size: _NewSize
) -> Sequence[Value | None]:
    """The results on an operand whose padding along spatial axes is ``fill``."""
    x, others = node.first_sized()
    _require_images(node, x)
    spatial = [axis for axis in range(2, len(x.counts)) if x.counts[axis] is not None]
    padded = x.padded
    if spatial:
        mask = node.valid(x, spatial)
        number = fill if isinstance(fill, Tensor) else node.constant(fill, padded.type.dtype)
        padded = node.emit("Where", [mask, padded, number])
    results = node.plain([padded, *others])
    counts: list[Tensor | None] = [x.counts[0], None, *(None for _ in x.counts[2:])]
    for axis in spatial:
        size = new_size(node, node.count(x, axis), axis - 2, kernel[axis - 2])
        counts[axis], _ = node.planned(
            node.largest(size, node.int64(0)), results[0].type.shape[axis]
        )
    return [node.value_of(result, counts) for result in results]


def _of_windows(node: SizedNode, size: Tensor, axis: int, kernel: int) -> Tensor:
    """The number of steps of a window that begin within an axis with its padding."""
    stride = _one_of(node, "strides", axis)
    reach = _one_of(node, "dilations", axis) * (kernel - 1) + 1
    begin, end = _pads(node, axis, reach, stride)
    if node.integer("ceil_mode", 0):
        raise node.refuse("rounds up a size that data decides")
    room = node.add(size, node.int64(begin + end - reach + stride))
    return node.div(node.largest(room, node.int64(0)), node.int64(stride))


def _one_of(node: SizedNode, name: str, axis: int) -> int:
    return node.integers(name)[axis] if node.has(name) and node.integers(name) else 1


def _pads(node: SizedNode, axis: int, reach: int, stride: int) -> tuple[int, int]:
    automatic = node.text("auto_pad", "NOTSET")
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        if stride != 1:
            raise node.refuse("its padding depends on a size that data decides")
        return (reach - 1) // 2, reach - 1 - (reach - 1) // 2
    pads = node.integers("pads") if node.has("pads") else ()
    if automatic == "VALID" or not pads:
        return 0, 0
    return pads[axis], pads[len(pads) // 2 + axis]


def _of_transposed(node: SizedNode, size: Tensor, axis: int, kernel: int) -> Tensor:
    """The places that all windows cover, without padding (ONNX ConvTranspose-11)."""
    if node.has("output_shape") or node.text("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise node.refuse("its padding depends on a size that data decides")
    stride = _one_of(node, "strides", axis)
    reach = _one_of(node, "dilations", axis) * (kernel - 1) + 1
    begin, end = _pads(node, axis, reach, stride)
    more = node.integers("output_padding")[axis] if node.has("output_padding") else 0
    steps = node.mul(node.sub(size, node.int64(1)), node.int64(stride))
    covered = node.add(steps, node.int64(reach + more - begin - end))
    is_some = node.emit("Greater", [size, node.int64(0)])
    return node.noted(node.emit("Where", [is_some, covered, node.int64(0)]))


def _conv(weights: int, zero_point: int, new_size: _NewSize) -> SizedRule:
    """A rule for convolutions; the operands that weights and the zero point of the image are."""

    def rule(node: SizedNode) -> Sequence[Value | None]:
        fill: float | Tensor = 0
        if zero_point and node.optional(zero_point) is not None:
            fill = node.scalar(zero_point)
        return _windows(node, fill, node.input(weights).type.shape[2:], new_size)

    return rule


def _max_pool(node: SizedNode) -> Sequence[Value | None]:
    x = node.sized(0)
    if len(node.output_names) > 1 and any(x.counts[2:]):
        raise node.refuse("gives places in a tensor of a size that data decides")
    dtype = x.padded.type.dtype
    lowest = -np.inf if dtype.is_float else int(np.iinfo(dtype.storage).min)
    return _windows(node, lowest, node.integers("kernel_shape"), _of_windows)


def _average_pool(node: SizedNode) -> Sequence[Value | None]:
    """Sums over windows, over the number of places that are no padding, found in the same way."""
    x = node.sized(0)
    kernel = node.integers("kernel_shape")
    if not any(x.counts[2:]) or node.integer("count_include_pad", 0):
        return _windows(node, 0, kernel, _of_windows)
    (means,) = _windows(node, 0, kernel, _of_windows)
    assert isinstance(means, SizedValue)
    mask = node.valid(x, range(2, len(x.counts)))
    assert mask is not None
    dtype = x.padded.type.dtype.value
    ones = node.emit("Cast", [mask], {"to": dtype})
    shape = (1, 1, *x.padded.type.shape[2:])
    (share,) = node.plain([node.emit("Expand", [ones], {"shape": shape})])
    whole = node.emit("Div", [means.padded, share])
    return [SizedValue(whole, means.counts)]


def _global_pool(node: SizedNode) -> Sequence[Value | None]:
    """A mean or maximum of what counts; means are over as many elements as that is."""
    x = node.sized(0)
    _require_images(node, x)
    spatial = [axis for axis in range(2, len(x.counts)) if x.counts[axis] is not None]
    is_mean = node.op_type == "GlobalAveragePool"
    (result,) = node.plain([node.masked(x, 0 if is_mean else -np.inf, spatial)])
    if is_mean and spatial:
        total = node.int64(1)
        for axis in spatial:
            total = node.mul(total, node.count(x, axis))
        room = node.constant(prod(x.padded.type.shape[axis] for axis in spatial), result.type.dtype)
        count = node.emit("Cast", [total], {"to": result.type.dtype.value})
        result = node.emit("Mul", [result, node.emit("Div", [room, count])])
    return [node.value_of(result, (x.counts[0], *(None,) * (result.type.rank - 1)))]


def _batch_norm(node: SizedNode) -> Sequence[Value | None]:
    """Every element by itself, by the numbers of its channel."""
    x, others = node.first_sized()
    _require_images(node, x)
    if node.integer("training_mode", 0) or len(node.output_names) > 1:
        raise node.refuse("computes statistics of what data decides the size of")
    return [node.value_of(node.plain([x.padded, *others])[0], x.counts)]


RULES: Final[dict[str, SizedRule]] = {
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Conv": _conv(1, 0, _of_windows),
    "ConvInteger": _conv(1, 2, _of_windows),
    "ConvTranspose": _conv(1, 0, _of_transposed),
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "MaxPool": _max_pool,
    "QLinearConv": _conv(3, 2, _of_windows),
}
