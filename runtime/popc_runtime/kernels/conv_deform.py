"""Deformable convolution: each tap of each window reads the input at an offset of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Calls, Kernel
from popc_runtime.kernels.parts.conv_plane import grouped
from popc_runtime.kernels.parts.epilogue import in_float32
from popc_runtime.kernels.parts.windows import WindowAxis, window_axes

__all__ = ["KERNELS", "Corner", "corners", "parts", "window_positions"]

_SAMPLES_BYTES: Final = 1 << 22  # of the samples of one block of output positions


def _deform_conv(binding: Binding) -> Calls:
    """X [N, C, H, W], W, offset [N, groups * taps * 2, H', W'], B?, mask? [N, groups * taps, ..].

    ONNX DeformConv-22: bilinear samples, zero outside the input.
    """
    if binding.output().size == 0:
        return ()
    return partial(_compute, binding)


def _compute(binding: Binding) -> None:
    x, w, offset = (binding.input(index) for index in range(3))
    bias, mask, out = binding.optional(3), binding.optional(4), binding.output()
    axes = window_axes(binding, x.shape[2:], w.shape[2:], out.shape[2:])
    regions, taps = binding.integer("offset_group", 1), prod(w.shape[2:])
    weights = grouped(w, 0, binding.integer("group", 1))
    matrix = weights.reshape(*weights.shape[:2], prod(weights.shape[2:]))
    positions = window_positions(axes)
    for n, image in enumerate(x):
        shift = offset[n].reshape(regions, taps, 2, -1)
        scale = None if mask is None else mask[n].reshape(regions, taps, -1)
        planes = image.reshape(regions, len(image) // regions, -1)
        result = out[n].reshape(*matrix.shape[:2], -1)
        for part in parts(result.shape[-1], x.itemsize * len(image) * taps):
            where = positions[..., part] + shift[..., part]
            samples = _bilinear(planes, where, axes)  # [regions, channels, taps, positions]
            if scale is not None:
                samples *= scale[:, None, :, part]
            columns = samples.reshape(matrix.shape[0], matrix.shape[2], -1)
            result[..., part] = matrix @ columns
        if bias is not None:
            np.add(out[n], bias[:, None, None], out=out[n])


def parts(length: int, bytes_each: int) -> Iterator[slice]:
    """Blocks of output positions, for each of which there are ``bytes_each`` of samples."""
    count = max(1, _SAMPLES_BYTES // max(bytes_each, 1))
    return (slice(start, start + count) for start in range(0, length, count))


def window_positions(axes: tuple[WindowAxis, ...]) -> Array:
    """[taps, 2, output positions]: where windows without offsets read."""
    grids = [
        np.arange(axis.out) * axis.stride - axis.begin
        + np.arange(axis.kernel)[:, None] * axis.dilation
        for axis in axes
    ]  # fmt: skip
    rows, columns = grids
    shape = (len(rows), len(columns), rows.shape[1], columns.shape[1])
    both = [
        np.broadcast_to(rows[:, None, :, None], shape),
        np.broadcast_to(columns[None, :, None, :], shape),
    ]
    stacked = np.stack(both, axis=2)
    return stacked.reshape(shape[0] * shape[1], 2, -1)


@dataclass(frozen=True, slots=True)
class Corner:
    """Elements at one end of the cells that positions along an axis lie in.

    Attributes:
        index: The element; any if it is outside the input.
        weight: What the element counts, 0 outside the input.
        slope: How that changes as the position moves on.
    """

    index: Array
    weight: Array
    slope: Array


def corners(position: Array, size: int, dtype: np.dtype[np.generic]) -> tuple[Corner, Corner]:
    """Both ends of the cells, for weights of ``dtype``."""
    low = np.floor(position)
    fraction = position - low
    ends = ((low, 1 - fraction, -1), (low + 1, fraction, 1))
    first, second = (_corner(*end, size, dtype) for end in ends)
    return first, second


def _corner(
    index: Array, weight: Array, slope: int, size: int, dtype: np.dtype[np.generic]
) -> Corner:
    inside = (index >= 0) & (index < size)
    return Corner(
        np.where(inside, index, 0).astype(np.intp),  # what is no number has no place
        np.where(inside, weight, 0).astype(dtype),
        np.where(inside, slope, 0).astype(dtype),
    )


def _bilinear(planes: Array, where: Array, axes: tuple[WindowAxis, ...]) -> Array:
    """Samples [regions, channels, taps, P] of the planes [regions, channels, H * W].

    ``where`` [regions, taps, 2, P] are rows and columns.
    """
    height, width = (axis.size for axis in axes)
    rows = corners(where[:, :, 0], height, planes.dtype)
    columns = corners(where[:, :, 1], width, planes.dtype)
    regions, channels = planes.shape[:2]
    total = np.zeros((regions, channels, *where.shape[1:2], where.shape[-1]), planes.dtype)
    for row in rows:
        for column in columns:
            index, weight = row.index * width + column.index, row.weight * column.weight
            for region in range(regions):
                total[region] += np.take(planes[region], index[region], axis=1) * weight[region]
    return total


KERNELS: Final[dict[str, Kernel]] = {"DeformConv": in_float32(_deform_conv)}
