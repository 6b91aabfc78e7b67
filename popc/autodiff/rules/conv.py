"""Gradients of convolutions.

Convolution and transposed convolution are each other's gradient in the data; the gradient in the
weights is an op of its own, the same for both with data and result in the other's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Final

import numpy as np

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import AttributeMap, Shape, Tensor
from popc.ir.attributes import integer, integers
from popc.ops.windows import window_attributes
from popc_runtime.format import Array, DType

__all__ = ["GRADIENTS"]


def _conv(b: Backward) -> Sequence[Tensor | None]:
    g, x, w = b.grad(), b.input(0), b.input(1)
    sizes, kernel = x.type.shape[2:], w.type.shape[2:]
    attributes = _window(b, len(sizes))
    data = weights = None
    if b.wants(0):
        none = (0,) * len(sizes)
        windows = window_attributes(attributes, len(sizes))
        reached = windows.transposed(g.type.shape[2:], kernel, none)
        rest = tuple(size - end for size, end in zip(sizes, reached, strict=True))
        data = b.emit("ConvTranspose", [g, w], {**attributes, "output_padding": rest})
    if b.wants(1):
        weights = _weights(b, g, x, attributes)
    return [data, weights, _bias(b, 2)]


def _conv_transpose(b: Backward) -> Sequence[Tensor | None]:
    """Elements that the windows do not reach, those of ``output_padding``, are cut off first."""
    g, x = b.grad(), b.input(0)
    rank = x.type.rank - 2
    attributes = _window(b, rank)
    strides, pads = integers(attributes, "strides"), integers(attributes, "pads")
    extra = integers(b.attributes, "output_padding", (0,) * rank)
    beyond = (more - more % stride for more, stride in zip(extra, strides, strict=True))
    ends = (end - more for end, more in zip(pads[rank:], beyond, strict=True))
    attributes["pads"] = (*pads[:rank], *ends)
    data = b.emit("Conv", [g, b.input(1)], attributes) if b.wants(0) else None
    weights = _weights(b, x, g, attributes) if b.wants(1) else None
    return [data, weights, _bias(b, 2)]


def _window(b: Backward, rank: int) -> AttributeMap:
    return {
        "strides": integers(b.attributes, "strides", (1,) * rank),
        "dilations": integers(b.attributes, "dilations", (1,) * rank),
        "pads": integers(b.attributes, "pads", (0,) * (2 * rank)),
        "group": integer(b.attributes, "group", 1),
    }


def _weights(b: Backward, result: Tensor, data: Tensor, attributes: AttributeMap) -> Tensor:
    """The weights of the Conv from ``data`` to ``result``."""
    kernel: Shape = b.input(1).type.shape[2:]
    return b.emit("ConvWeightsGrad", [result, data], {**attributes, "kernel_shape": kernel})


def _bias(b: Backward, index: int) -> Tensor | None:
    """The gradient summed over all but the channels."""
    if not b.wants(index):
        return None
    return b.sum(b.grad(), [axis for axis in range(b.grad().type.rank) if axis != 1])


def _deform_conv(b: Backward) -> Sequence[Tensor | None]:
    """Operands are X, W, offset, [B], [mask]."""
    operands = [b.grad(), *(b.input(index) for index in range(3)), b.optional(4)]
    results: list[Tensor | None] = [*b.emit_all("DeformConvGrad", operands, b.attributes)]
    data, weights, offset, *mask = results
    return [data, weights, offset, _bias(b, 3), *mask]


def _col2im(b: Backward) -> Sequence[Tensor | None]:
    """The blocks of the image."""
    image, block = integers(b.attributes, "image_shape"), integers(b.attributes, "block_shape")
    window = window_attributes(b.attributes, len(image))
    padded = b.pad(b.grad(), (0, 0, *window.begins), (0, 0, *window.ends))
    batch, channels, *sizes = padded.type.shape
    axes = zip(block, window.dilations, window.outputs(image, block), window.strides, strict=True)
    places = [
        np.arange(taps)[:, None] * dilation + np.arange(count) * stride
        for taps, dilation, count, stride in axes
    ]
    flat = b.reshape(padded, (batch, channels, prod(sizes)))
    table = b.constant(_flat_places(places, sizes), DType.INT32)
    blocks = b.emit("Gather", [flat, table], {"axis": 2})
    return [b.reshape(blocks, b.input(0).type.shape)]


def _flat_places(places: Sequence[Array], sizes: Sequence[int]) -> Array:
    """[taps, blocks]: flat positions, from the places [taps, blocks] along each axis."""

    def extended(flat: Array, axis: tuple[Array, int]) -> Array:
        inner, size = axis
        both = flat[:, None, :, None] * size + inner[None, :, None, :]
        return both.reshape(len(flat) * len(inner), -1)

    return reduce(extended, zip(places, sizes, strict=True), np.zeros((1, 1), np.int64))


GRADIENTS: Final[dict[str, GradientRule]] = {
    "Col2Im": _col2im,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _deform_conv,
}
