"""RoiAlign and MaxRoiPool: a fixed number of bins from regions that are known at run time.

Regions are worked on one after another: each reads another window, and one window of all channels
is plenty of work for a numpy call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import ceil, floor
from typing import Any, Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.copying import copy_calls

__all__ = [
    "KERNELS",
    "Edges",
    "Samples",
    "corner_points",
    "largest_corners",
    "pooled_regions",
    "sampled_regions",
]


# First element and end of each bin.
Edges: TypeAlias = list[tuple[int, int]]

# Where an infinite edge of a region is taken to be.
_FAR: Final = 1e9


@dataclass(frozen=True, slots=True)
class Samples:
    """Sampling points along one axis of a region.

    Attributes:
        bins: Bin of each point.
        low, high: The elements that each point lies between.
        fraction: Distance from ``low``; the weight of ``high``.
        inside: Whether the point counts; what lies more than one element outside does not.
        per_bin: Points per bin.
    """

    bins: Array
    low: Array
    high: Array
    fraction: Array
    inside: Array
    per_bin: int

    @property
    def low_weight(self) -> Array:
        """Weight of ``low``: zero for points that do not count."""
        return (1 - self.fraction) * self.inside

    @property
    def high_weight(self) -> Array:
        """Weight of ``high``: zero for points that do not count."""
        return self.fraction * self.inside

    @property
    def ends(self) -> list[tuple[Array, Array]]:
        """``low`` and ``high`` with their weights."""
        return [(self.low, self.low_weight), (self.high, self.high_weight)]

    def averaging(self, bins: int) -> tuple[slice, Array]:
        """The elements that are read, and the matrix [bins, elements] that averages them."""
        if not self.inside.any():
            return slice(0, 0), np.zeros((bins, 0), np.float32)
        first, stop = int(self.low[self.inside].min()), int(self.high[self.inside].max()) + 1
        matrix = np.zeros((bins, stop - first), np.float32)
        rows = self.bins[self.inside]
        np.add.at(matrix, (rows, self.low[self.inside] - first), self.low_weight[self.inside])
        np.add.at(matrix, (rows, self.high[self.inside] - first), self.high_weight[self.inside])
        return slice(first, stop), matrix / np.float32(self.per_bin)


def _samples(start: Any, size: Any, bins: int, ratio: int, length: int) -> Samples:
    """``ratio`` points per bin, or one per element if it is 0."""
    bin_size = np.float32(size / np.float32(bins))
    per_bin = ratio if ratio > 0 else max(ceil(bin_size), 0)
    numbers = _relevant(float(start), float(bin_size), bins, per_bin, length)
    bin_of, within = np.divmod(numbers, max(per_bin, 1))
    half = np.float32(0.5)
    x = start + bin_of.astype(np.float32) * bin_size
    x = x + (within.astype(np.float32) + half) * bin_size / np.float32(max(per_bin, 1))
    inside = (x >= -1) & (x <= length)
    x = np.clip(x, 0, length - 1).astype(np.float32)
    low = np.floor(x).astype(np.intp)
    high = np.minimum(low + 1, length - 1)
    return Samples(bin_of, low, high, x - low.astype(np.float32), inside, per_bin)


def _relevant(start: float, bin_size: float, bins: int, per_bin: int, length: int) -> Array:
    """Numbers of the points that may count: regions far larger than the map have few of those."""
    total = bins * per_bin
    if bin_size <= 0 or total <= 4 * bins:
        return np.arange(total)
    step = bin_size / per_bin
    first = max(0, floor((-1 - start) / step) - 1)
    stop = min(total, ceil((length - start) / step) + 1)
    return np.arange(first, max(stop, first))


# (image [H, W, C], rows, columns, result [C, bins, bins])
_Pool: TypeAlias = Callable[[Array, Samples, Samples, Array], None]


def _roi_align(binding: Binding) -> Calls:
    """Regions [R, 4] of X [N, C, H, W] by bilinear sampling (ONNX RoiAlign-16)."""
    x, out = binding.input(0), binding.output()
    if out.size == 0:
        return ()
    work = np.result_type(x.dtype, np.float32)
    batch, channels, height, width = x.shape
    last = binding.scratch.take((batch, height, width, channels), work)
    target = np.moveaxis(last, 3, 1)
    to_last: tuple[Call, ...] = (
        copy_calls(target, x) if x.dtype == work else (partial(np.copyto, target, x),)
    )
    pool = _average_region if binding.text("mode") == "avg" else _maximum_region
    return (*to_last, partial(_each_region, binding, last, pool))


def _each_region(binding: Binding, x: Array, pool: _Pool) -> None:
    out = binding.output()
    regions = sampled_regions(binding, x.shape[:3], out.shape[2:])
    for (image, rows, columns), result in zip(regions, out, strict=True):
        pool(x[image], rows, columns, result)


def sampled_regions(
    binding: Binding, shape: Sequence[int], bins: Sequence[int]
) -> Iterator[tuple[int, Samples, Samples]]:
    """Image and sampling points, along rows and columns, of each region of a RoiAlign.

    Operand 1 holds the regions, operand 2 their batch indices.  ``shape`` is that of the feature
    map, without channels.
    """
    rois, batches = binding.input(1), binding.input(2)
    half_pixel = binding.text("coordinate_transformation_mode") == "half_pixel"
    scale, offset = np.float32(binding.number("spatial_scale")), np.float32(0.5 * half_pixel)
    ratio = binding.integer("sampling_ratio")
    boxes = np.nan_to_num(rois.astype(np.float32) * scale - offset, posinf=_FAR, neginf=-_FAR)
    extents = boxes[:, 2:] - boxes[:, :2]
    if not half_pixel:
        extents = np.maximum(extents, np.float32(1))
    for box, extent, batch in zip(boxes, extents, batches, strict=True):
        rows = _samples(box[1], extent[1], bins[0], ratio, shape[1])
        columns = _samples(box[0], extent[0], bins[1], ratio, shape[2])
        yield _in_batch(batch, shape[0]), rows, columns


def _in_batch(index: Any, batches: int) -> int:
    """A run-time batch index, checked.

    Raises:
        ValueError: there is no such image.
    """
    if not 0 <= index < batches:
        raise ValueError(f"batch index {index} is out of range for {batches} images")
    return int(index)


def _average_region(image: Array, rows: Samples, columns: Samples, out: Array) -> None:
    """Image [H, W, C] -> out [C, bins, bins].  Sampling and averaging are separable."""
    row_range, by_row = rows.averaging(out.shape[1])
    column_range, by_column = columns.averaging(out.shape[2])
    window = image[row_range, column_range]
    height, width, channels = window.shape
    pooled = by_row @ window.reshape(height, width * channels)
    pooled = pooled.reshape(len(by_row), width, channels)
    np.copyto(out, np.moveaxis(np.matmul(by_column, pooled), 2, 0), casting="same_kind")


def _maximum_region(image: Array, rows: Samples, columns: Samples, out: Array) -> None:
    corners = corner_points(image, rows, columns)
    largest = largest_corners(corners, rows, columns, out.shape[1:])
    np.copyto(out, np.moveaxis(largest, 2, 0), casting="same_kind")


def corner_points(image: Array, rows: Samples, columns: Samples) -> list[Array]:
    """The four weighted corners of each sample: [row points, column points, C] each."""
    return [
        image[row[:, None], column] * np.multiply.outer(row_weight, column_weight)[..., None]
        for row, row_weight in rows.ends
        for column, column_weight in columns.ends
    ]


def largest_corners(
    corners: Sequence[Array], rows: Samples, columns: Samples, bins: tuple[int, ...]
) -> Array:
    """The largest corner of any sample in each bin: what implementations of RoiAlign agree on."""
    points = reduce(np.maximum, corners)
    largest = np.zeros((*bins, points.shape[2]), points.dtype)
    if points.size:
        row_bins, row_starts = np.unique(rows.bins, return_index=True)
        column_bins, column_starts = np.unique(columns.bins, return_index=True)
        by_row = np.maximum.reduceat(points, row_starts, axis=0)
        best = np.maximum.reduceat(by_row, column_starts, axis=1)
        largest[np.ix_(row_bins, column_bins)] = best
    _include_zero(largest, rows, columns)
    return largest


def _include_zero(largest: Array, rows: Samples, columns: Samples) -> None:
    """Bins with points that were left out as irrelevant: those count as zero."""
    for axis, samples in enumerate((rows, columns)):
        counts = np.bincount(samples.bins, minlength=largest.shape[axis])
        partly = np.flatnonzero(counts < samples.per_bin)
        index = (partly,) if axis == 0 else (slice(None), partly)
        largest[index] = np.maximum(largest[index], 0)


def _max_roi_pool(binding: Binding) -> Calls:
    """Regions [R, 5] of X [N, C, H, W], rounded to elements (ONNX MaxRoiPool-1)."""
    if binding.output().size == 0:
        return ()
    return partial(_pool_regions, binding)


def _pool_regions(binding: Binding) -> None:
    x, out = binding.input(0), binding.output()
    regions = pooled_regions(binding, x.shape, out.shape[2:])
    for (number, rows, columns), result in zip(regions, out, strict=True):
        image = x[number]
        bands = np.zeros((len(image), len(rows), x.shape[3]), x.dtype)
        for row, (first, stop) in enumerate(rows):
            if first < stop:
                np.max(image[:, first:stop], axis=1, out=bands[:, row])
        empty = [row for row, (first, stop) in enumerate(rows) if first >= stop]
        for column, (first, stop) in enumerate(columns):
            result[:, :, column] = bands[:, :, first:stop].max(axis=2) if first < stop else 0
        result[:, empty] = 0


def pooled_regions(
    binding: Binding, shape: Sequence[int], bins: Sequence[int]
) -> Iterator[tuple[int, Edges, Edges]]:
    """Image and edges of the bins, along rows and columns, of each region of a MaxRoiPool.

    Operand 1 holds the regions; ``shape`` is that of the feature map.
    """
    rois = binding.input(1)
    scale = np.float32(binding.number("spatial_scale"))
    corners = _round_away(rois[:, 1:].astype(np.float32) * scale)
    for roi, (left, top, right, bottom) in zip(rois, corners, strict=True):
        rows = _edges(top, bottom, bins[0], shape[2])
        yield _in_batch(roi[0], shape[0]), rows, _edges(left, right, bins[1], shape[3])


def _round_away(values: Array) -> Array:
    """Rounded to integers, halves away from zero as C's round does."""
    rounded: Array = np.trunc(values + np.copysign(np.float32(0.5), values))
    return rounded


def _edges(first: Any, last: Any, bins: int, length: int) -> Edges:
    """First element and end of each bin between elements ``first`` and ``last``, inclusive."""
    size = np.float32(max(last - first + 1, 1) / np.float32(bins))
    starts = np.floor(np.arange(bins, dtype=np.float32) * size) + first
    stops = np.ceil(np.arange(1, bins + 1, dtype=np.float32) * size) + first
    clipped = np.clip(np.stack([starts, stops], axis=1), 0, length).astype(np.intp)
    return [(int(start), int(stop)) for start, stop in clipped]


KERNELS: Final[dict[str, Kernel]] = {"MaxRoiPool": _max_roi_pool, "RoiAlign": _roi_align}
