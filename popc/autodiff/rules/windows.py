"""The gradient of Col2Im: the blocks of the image."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Final

import numpy as np

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Tensor
from popc.ir.attributes import integers
from popc.ops.windows import window_attributes
from popc_runtime.format import Array, DType

__all__ = ["GRADIENTS"]


def _col2im(b: Backward) -> Sequence[Tensor | None]:
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


GRADIENTS: Final[dict[str, GradientRule]] = {"Col2Im": _col2im}
