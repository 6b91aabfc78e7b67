"""Depthwise convolution, where each output channel reads one input channel, by banded matrices.

Why matrix products?  There is no channel to sum over, and adding up the taps with ufuncs takes two
passes over the data per tap.  BLAS multiplies ten times faster than numpy adds, so it pays to write
the taps into a banded matrix and multiply by its zeros.  There are two ways to do so:

* `_by_columns` expands the input by the taps along a row (see `expansion`), as S [H, taps, W'].
  A few output rows then are the product of a matrix [rows, (input rows, taps)], which holds the
  weights once per row, with consecutive rows of S.  Little waste, long rows: the usual way.
* `_by_rows` multiplies whole windows of rows, as they lie in memory, with a matrix that holds the
  weights once per output column.  The waste grows with the width of the image, but nothing short
  is ever copied: the way for images that are narrow.

The price of both: a non-finite input spoils the outputs whose products read it times zero, a few
rows or columns beyond the windows it lies in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import as_strided

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.binding import Binding, Call
from popc_runtime.kernels.conv_dense import Plane
from popc_runtime.kernels.epilogue import epilogue_calls
from popc_runtime.kernels.expansion import expand_rows, fill_columns
from popc_runtime.kernels.windows import Axis

__all__ = ["depthwise_calls", "is_depthwise"]

_BLOCK_BYTES: Final = 3 << 18  # of operands and results of a block: it stays in the cache
_NARROW: Final = 16  # widest image for `_by_rows`
_ROWS: Final = range(4, 9)  # output rows per product: fewer are slow, more waste too much
_CALL: Final = 4000  # what a product costs beyond its multiplications, as multiplications
_MOST_WASTE: Final = 8  # rows of S per row of the kernel; beyond, a dense sum does less


def is_depthwise(plane: Plane) -> bool:
    """Whether each group has one input channel, and banded matrices suit the kernel."""
    groups, _, *summed = plane.w.shape[:-2]
    return groups > 1 and summed == [1] and plane.rows.extent <= _MOST_WASTE * plane.rows.kernel


def depthwise_calls(binding: Binding, plane: Plane) -> tuple[Call, ...]:
    """The calls of a depthwise convolution over rows and columns."""
    narrow = max(plane.columns.size, plane.columns.out) <= _NARROW
    bands = (_column_bands if narrow else _row_bands)(binding, plane)
    blocks = (_by_rows if narrow else _by_columns)(binding, plane, bands.matrix)
    return (*bands.calls, *blocks)


@dataclass(frozen=True, slots=True)
class _Bands:
    """Banded matrices, one per output channel, and the calls that fill them unless constant."""

    matrix: Array
    calls: tuple[Call, ...]


def _bands(binding: Binding, banded: Array, diagonals: Iterator[tuple[Array, Array]]) -> _Bands:
    """``banded`` with weights written along its diagonals."""
    calls: tuple[Call, ...] = (partial(banded.fill, 0),)
    calls += tuple(partial(np.copyto, target, source) for target, source in diagonals)
    if not binding.is_constant(1):
        return _Bands(banded, calls)
    for call in calls:
        call()
    return _Bands(banded, ())


def _memory(binding: Binding, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Memory for packed weights: its own if it is filled only once."""
    if binding.is_constant(1):
        return np.empty(shape, dtype)
    return binding.scratch.take(shape, dtype)


# -- expanded by the taps along a row --------------------------------------------------------------


def _rows_per_product(rows: Axis, columns: Axis) -> int:
    """The cheapest number of output rows, by multiplications and products."""

    def cost(count: int) -> float:
        read = (count - 1) * rows.stride + rows.extent
        products = -(-rows.out // count)
        return products * (count * read * columns.kernel + _CALL / columns.out)

    return min((min(count, rows.out) for count in _ROWS), key=cost)


def _row_bands(binding: Binding, plane: Plane) -> _Bands:
    """Matrices [channels, multiplier, output rows, (input rows, taps)]."""
    rows = plane.rows
    count = _rows_per_product(rows, plane.columns)
    read = (count - 1) * rows.stride + rows.extent
    groups, multiplier, _, height, width = plane.w.shape
    shape = (groups, multiplier, count, read, width)
    banded = _memory(binding, shape, plane.w.dtype)
    diagonals = (
        (banded[:, :, row, row * rows.stride :][:, :, : rows.extent : rows.dilation], plane.w[:, :, 0])
        for row in range(count)
    )
    bands = _bands(binding, banded, diagonals)
    return replace(bands, matrix=banded.reshape(groups, multiplier, count, read * width))


def _by_columns(binding: Binding, plane: Plane, bands: Array) -> Iterator[Call]:
    """Blocks of channels, or of rows of one channel."""
    rows, columns = plane.rows, plane.columns
    _, groups, multiplier, height, width = plane.out.shape
    count = bands.shape[2]
    per_row = width * plane.x.itemsize * (columns.kernel * rows.stride + multiplier)
    block = max(1, min(groups, _BLOCK_BYTES // (per_row * height)))
    tiles = max(1, _BLOCK_BYTES // (per_row * count)) if block == 1 else -(-height // count)
    length = min(height, tiles * count)
    read = (length - 1) * rows.stride + rows.extent
    s = binding.scratch.take((block, read, columns.kernel, width), plane.x.dtype)
    shifted = np.moveaxis(s, 2, 1)
    padded = replace(rows, kernel=1, stride=1, out=(height - 1) * rows.stride + rows.extent)
    yield from fill_columns(shifted, columns)
    for place in _blocks(plane, block, length):
        image, channels, lines = place
        x = plane.x[image, channels, 0]
        part = slice(0, (lines.stop - lines.start - 1) * rows.stride + rows.extent)
        target = shifted[: len(x), :, part]
        yield from expand_rows(x, target, padded, lines.start * rows.stride, columns)
        yield from _tile_products(bands[channels], s[: len(x)], plane.out[place_index(place)], rows)
        yield from _finish(binding, plane, place)
