"""The gradients of RoiAlign and MaxRoiPool by the feature map, one region after another."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Calls, Kernel
from popc_runtime.kernels.core.copying import copy_calls
from popc_runtime.kernels.parts.accumulate import clear
from popc_runtime.kernels.parts.epilogue import in_float32
from popc_runtime.kernels.regions import (
    Edges,
    Samples,
    corner_points,
    largest_corners,
    pooled_regions,
    sampled_regions,
)

__all__ = ["KERNELS"]

# (number of the image, its gradient [H, W, C], rows, columns, gradient of the region [C, ...])
_Spread: TypeAlias = Callable[[int, Array, Samples, Samples, Array], None]


def _roi_align_grad(binding: Binding) -> Calls:
    """Gradient [R, C, ...], regions [R, 4], batch indices [R] and, to find maxima, X."""
    grad, x, out = binding.input(0), binding.optional(3), binding.output()
    if grad.size == 0:
        return clear(out)
    batch, channels, height, width = out.shape
    total = binding.scratch.take((batch, height, width, channels), out.dtype)
    spread = _spread_average if x is None else partial(_spread_maximum, np.moveaxis(x, 1, 3))
    each = partial(_each_region, binding, total, spread)
    return (clear(total), each, *copy_calls(out, np.moveaxis(total, 3, 1)))


def _each_region(binding: Binding, total: Array, spread: _Spread) -> None:
    grad = binding.input(0)
    regions = sampled_regions(binding, total.shape[:3], grad.shape[2:])
    for (number, rows, columns), part in zip(regions, grad, strict=True):
        spread(number, total[number], rows, columns, part)


def _spread_average(
    number: int, image: Array, rows: Samples, columns: Samples, grad: Array
) -> None:
    """The adjoint of two matrix products is that of their transposes."""
    del number
    row_range, by_row = rows.averaging(grad.shape[1])
    column_range, by_column = columns.averaging(grad.shape[2])
    window = image[row_range, column_range]
    height, width, channels = window.shape
    wide = np.matmul(by_column.T, np.moveaxis(grad, 0, 2))
    whole = by_row.T @ wide.reshape(len(by_row), width * channels)
    np.add(window, whole.reshape(height, width, channels), out=window)


def _spread_maximum(
    x: Array, number: int, image: Array, rows: Samples, columns: Samples, grad: Array
) -> None:
    """All to the corner that is the largest of its bin, to the first of several."""
    corners = corner_points(x[number], rows, columns)
    points = reduce(np.maximum, corners)
    largest = largest_corners(corners, rows, columns, grad.shape[1:])
    hits = points == largest[rows.bins[:, None], columns.bins]
    row, column, channel = np.nonzero(hits)
    places = (channel, rows.bins[row], columns.bins[column])
    _, firsts = np.unique(np.ravel_multi_index(places, grad.shape), return_index=True)
    row, column, channel = row[firsts], column[firsts], channel[firsts]
    gained = grad[channel, rows.bins[row], columns.bins[column]]
    flat = image.reshape(-1)
    waiting = np.ones(len(row), np.bool_)
    ends = ((r, c) for r in rows.ends for c in columns.ends)
    for corner, ((r, by_row), (c, by_column)) in zip(corners, ends, strict=True):
        mine = waiting & (corner[row, column, channel] == points[row, column, channel])
        waiting &= ~mine
        places = (r[row[mine]], c[column[mine]], channel[mine])
        weights = by_row[row[mine]] * by_column[column[mine]]
        np.add.at(flat, np.ravel_multi_index(places, image.shape), gained[mine] * weights)


def _max_roi_pool_grad(binding: Binding) -> Calls:
    """Gradient [R, C, ...], regions [R, 5] and X."""
    if binding.input(0).size == 0:
        return clear(binding.output())
    return (clear(binding.output()), partial(_spread_maxima, binding))


def _spread_maxima(binding: Binding) -> None:
    grad, x, out = binding.input(0), binding.input(2), binding.output()
    channels, height, width = x.shape[1:]
    every = np.arange(channels)[:, None]
    for (number, rows, columns), part in zip(
        pooled_regions(binding, x.shape, grad.shape[2:]), grad, strict=True
    ):
        used = [column for column, (first, stop) in enumerate(columns) if first < stop]
        places = _largest_columns(x[number], [columns[column] for column in used])
        best = x[number][every[:, None], np.arange(height)[:, None], places]
        flat = out[number].reshape(-1)
        for bin_, (first, stop) in enumerate(rows):
            if first < stop and used:
                row = best[:, first:stop].argmax(axis=1) + first
                column = places[every, row, np.arange(len(used))]
                positions = (every * height + row) * width + column
                np.add.at(flat, positions.reshape(-1), part[:, bin_, used].reshape(-1))


def _largest_columns(image: Array, bins: Edges) -> Array:
    """[C, H, bins]: where the largest element of each bin of columns stands, in every row."""
    places: Array = np.empty((*image.shape[:2], len(bins)), np.intp)
    for number, (first, stop) in enumerate(bins):
        np.add(image[:, :, first:stop].argmax(axis=2), first, out=places[:, :, number])
    return places


KERNELS: Final[dict[str, Kernel]] = {
    "MaxRoiPoolGrad": in_float32(_max_roi_pool_grad),
    "RoiAlignGrad": in_float32(_roi_align_grad),
}
