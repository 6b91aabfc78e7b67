"""Gradients of deformable convolution.

Where S are the bilinear samples and M their mask, the result is W @ (S * M).  So its gradient gives
that of W with the columns S * M, and W.T gives that of the columns, which goes on to the mask, to
the corners of each sample by their weights, and to the offsets by the slopes of these weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.conv_deform import Corner, corners, parts, window_positions
from popc_runtime.kernels.core.binding import Binding, Calls, Kernel
from popc_runtime.kernels.parts.conv_plane import grouped
from popc_runtime.kernels.parts.epilogue import in_float32
from popc_runtime.kernels.parts.windows import WindowAxis, window_axes

__all__ = ["KERNELS"]


def _deform_conv_grad(binding: Binding) -> Calls:
    """dY, X, W, offset, mask?: the gradients of X, W, the offset and the mask."""
    return partial(_compute, binding)


def _compute(binding: Binding) -> None:
    dy, x, w = (binding.input(index) for index in range(3))
    for index in range(2):
        summed = binding.optional_output(index)
        if summed is not None:
            summed[...] = 0
    weights = grouped(w, 0, binding.integer("group", 1))
    matrix = weights.reshape(*weights.shape[:2], prod(weights.shape[2:]))
    of_matrix = binding.optional_output(1)
    if of_matrix is not None:
        of_matrix = of_matrix.reshape(matrix.shape)
    axes = window_axes(binding, x.shape[2:], w.shape[2:], dy.shape[2:])
    positions = window_positions(axes)
    for n in range(len(x)):
        image = _Image.of(binding, n, len(positions))
        for part in parts(positions.shape[-1], image.planes.nbytes // image.planes.shape[-1]):
            where = positions[..., part] + image.shift[..., part]
            samples = _Samples.at(image.planes, where, axes)
            dy_part = dy[n].reshape(*matrix.shape[:2], -1)[..., part]
            image.add(samples, part, matrix.swapaxes(1, 2) @ dy_part)
            if of_matrix is not None:
                taken = image.masked(samples.values, part)
                of_matrix += dy_part @ taken.reshape(len(matrix), matrix.shape[2], -1).swapaxes(
                    1, 2
                )


@dataclass(frozen=True, slots=True)
class _Image:
    """One image of the batch, and the gradients of its parts, where wanted.

    Attributes:
        planes: [regions, channels, H * W].
        shift: [regions, taps, 2, positions].
        scale: [regions, taps, positions].
    """

    planes: Array
    shift: Array
    scale: Array | None
    of_planes: Array | None
    of_shift: Array | None
    of_scale: Array | None

    @classmethod
    def of(cls, binding: Binding, n: int, taps: int) -> _Image:
        """Image ``n``."""
        regions = binding.integer("offset_group", 1)
        height, width = binding.input(1).shape[2:]
        of_x, _, of_offset, of_mask = (binding.optional_output(index) for index in range(4))

        def part(array: Array | None, *shape: int) -> Array | None:
            return None if array is None else array[n].reshape(regions, *shape)

        planes, shift = (-1, height * width), (taps, 2, -1)
        return cls(
            binding.input(1)[n].reshape(regions, *planes),
            binding.input(3)[n].reshape(regions, *shift),
            part(binding.optional(4), taps, -1),
            part(of_x, *planes),
            part(of_offset, *shift),
            part(of_mask, taps, -1),
        )

    def masked(self, samples: Array, part: slice) -> Array:
        """Samples, or the gradient of what the mask makes of them, times the mask."""
        return samples if self.scale is None else samples * self.scale[:, None, :, part]

    def add(self, samples: _Samples, part: slice, columns: Array) -> None:
        """Add the gradients that those of the masked ``samples`` give."""
        grad = columns.reshape(samples.values.shape)
        if self.of_scale is not None:
            self.of_scale[..., part] = (grad * samples.values).sum(axis=1)
        grad = self.masked(grad, part)
        if self.of_shift is not None:
            self.of_shift[:, :, 0, part], self.of_shift[:, :, 1, part] = samples.slopes(grad)
        if self.of_planes is not None:
            samples.spread(grad, self.of_planes)


@dataclass(frozen=True, slots=True)
class _Samples:
    """Bilinear samples of planes [regions, channels, H * W].

    Attributes:
        values: [regions, channels, taps, P].
        width: Of the planes.
        rows, columns: The ends of the cells that the samples lie in, [regions, taps, P].
        elements: [regions, channels, taps, P] at each row's and column's end.
    """

    values: Array
    width: int
    rows: tuple[Corner, Corner]
    columns: tuple[Corner, Corner]
    elements: list[list[Array]]

    @classmethod
    def at(cls, planes: Array, where: Array, axes: tuple[WindowAxis, ...]) -> _Samples:
        """The samples at ``where`` [regions, taps, 2, P], rows and columns."""
        height, width = (axis.size for axis in axes)
        rows = corners(where[:, :, 0], height, planes.dtype)
        columns = corners(where[:, :, 1], width, planes.dtype)
        elements = [
            [_taken(planes, row.index * width + column.index) for column in columns] for row in rows
        ]
        ends = product(range(2), range(2))
        values = sum(
            elements[i][j] * (rows[i].weight * columns[j].weight)[:, None] for i, j in ends
        )
        return cls(np.asarray(values), width, rows, columns, elements)

    def slopes(self, grad: Array) -> tuple[Array, Array]:
        """The gradients of the positions, of rows and columns, given that of the samples."""
        by_row, by_column = np.zeros_like(grad), np.zeros_like(grad)
        for i, j in product(range(2), range(2)):
            row, column, element = self.rows[i], self.columns[j], self.elements[i][j]
            by_row += element * (row.slope * column.weight)[:, None]
            by_column += element * (row.weight * column.slope)[:, None]
        return (grad * by_row).sum(axis=1), (grad * by_column).sum(axis=1)

    def spread(self, grad: Array, planes: Array) -> None:
        """Add to ``planes`` their gradient, given that of the samples."""
        channels, size = planes.shape[1:]
        starts = np.arange(channels)[:, None, None] * size
        for row, column in product(self.rows, self.columns):
            index, weight = row.index * self.width + column.index, row.weight * column.weight
            for region, plane in enumerate(planes):
                places = (starts + index[region]).reshape(-1)
                shares = (grad[region] * weight[region]).reshape(-1)
                total = np.bincount(places, shares, channels * size)
                np.add(plane, total.reshape(plane.shape), out=plane, casting="same_kind")


def _taken(planes: Array, index: Array) -> Array:
    """[regions, channels, taps, P] of [regions, channels, H * W] at [regions, taps, P]."""
    regions, channels = planes.shape[:2]
    taken = np.empty((regions, channels, *index.shape[1:]), planes.dtype)
    for plane, places, out in zip(planes, index, taken, strict=True):
        np.take(plane, places, axis=1, out=out, mode="clip")  # "raise" would copy
    return taken


KERNELS: Final[dict[str, Kernel]] = {"DeformConvGrad": in_float32(_deform_conv_grad)}
