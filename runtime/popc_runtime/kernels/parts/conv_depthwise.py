"""Depthwise convolution, where each output channel reads one input channel, by banded matrices.

Why matrix products?  There is no channel to sum over, and adding up the taps with ufuncs takes two
passes over the data per tap.  BLAS multiplies ten times faster than numpy adds, so it pays to write
the taps into a banded matrix and multiply by its zeros.  These are the ways to do so:

* `_by_columns` expands the input by the taps along a row (see `expansion`), as S [H, taps, W'].
  A few output rows then are the product of a matrix [rows, (input rows, taps)], which holds the
  weights once per row, with consecutive rows of S.  Little waste, long rows: the usual way.
* `_by_rows` multiplies whole windows of rows, as they lie in memory, with a matrix that holds the
  weights once per output column.  The waste grows with the width of the image, but nothing short
  is ever copied: the way for images that are narrow.  `_by_tiles` does the same with pieces of a
  single long row: the way for signals.

The price: a non-finite input spoils the outputs whose products read it times zero, a few
rows or columns beyond the windows it lies in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import as_strided

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.sharing import even_slices, share_count
from popc_runtime.kernels.parts.conv_plane import Plane
from popc_runtime.kernels.parts.epilogue import epilogue_calls
from popc_runtime.kernels.parts.expansion import expand_rows, fill_columns
from popc_runtime.kernels.parts.windows import WindowAxis

__all__ = ["depthwise_calls", "is_depthwise"]

_BLOCK_BYTES: Final = 3 << 18  # of operands and results of a block: it stays in the cache
_NARROW: Final = 16  # widest image for `_by_rows`
_TILE: Final = 32  # outputs per product in `_by_tiles`
_ROWS: Final = range(4, 9)  # output rows per product: fewer are slow, more waste too much
_CALL: Final = 4000  # what a product costs beyond its multiplications, as multiplications
_MOST_WASTE: Final = 8  # rows of S per row of the kernel; beyond, a dense sum does less


def is_depthwise(plane: Plane) -> bool:
    """True if each group has one input channel, and banded matrices suit the kernel."""
    groups, _, *summed = plane.w.shape[:-2]
    return groups > 1 and summed == [1] and plane.rows.extent <= _MOST_WASTE * plane.rows.kernel


def depthwise_calls(binding: Binding, plane: Plane) -> tuple[Call, ...]:
    """The calls of a depthwise convolution over rows and columns."""
    rows, columns = plane.rows, plane.columns
    if rows.is_plain and rows.size == 1 and columns.out >= 2 * _TILE:
        tile = replace(
            columns, size=(_TILE - 1) * columns.stride + columns.extent, begin=0, out=_TILE
        )
        bands, method = _column_bands(binding, replace(plane, columns=tile)), _by_tiles
    elif max(columns.size, columns.out) <= _NARROW:
        bands, method = _column_bands(binding, plane), _by_rows
    else:
        bands, method = _row_bands(binding, plane), _by_columns
    inner = bands.matrix.shape[3 if method is _by_columns else 2]
    copied = plane.x.size * columns.kernel
    count = share_count(multiplications=2 * inner * plane.out.size, elements=copied)
    parts = even_slices(plane.w.shape[0], count)
    chunks = [partial(method, binding, plane.of_groups(p), bands.matrix[p]) for p in parts]
    return (*bands.calls, *parallel_calls(binding.scratch, chunks))


@dataclass(frozen=True, slots=True)
class _Bands:
    """Banded matrices, one per output channel, and the calls that fill them if they may change."""

    matrix: Array
    calls: tuple[Call, ...]


def _filling(
    binding: Binding, banded: Array, diagonals: Iterator[tuple[Array, Array]]
) -> tuple[Call, ...]:
    """Calls that write weights along the diagonals of ``banded``; none if they never change."""
    calls: list[Call] = [partial(banded.fill, 0)]
    calls += (partial(np.copyto, target, source) for target, source in diagonals)
    if not binding.is_constant(1):
        return tuple(calls)
    for call in calls:
        call()
    return ()


def _memory(binding: Binding, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Memory for packed weights: its own if it is filled only once."""
    if binding.is_constant(1):
        return np.empty(shape, dtype)
    return binding.scratch.take(shape, dtype)


# -- expanded by the taps along a row --------------------------------------------------------------


def _rows_per_product(rows: WindowAxis, columns: WindowAxis) -> int:
    """The cheapest number of output rows, by multiplications and products.

    With all rows in one product the padding across rows is left out of S.
    """

    def cost(count: int) -> float:
        read = (count - 1) * rows.stride + rows.extent
        products = -(-rows.out // count)
        if products == 1:
            read = rows.size
        return products * (count * read * columns.kernel + _CALL / columns.out)

    candidates = [count for count in _ROWS if count < rows.out]
    return min([rows.out, *candidates], key=cost)


def _lines(rows: WindowAxis, count: int) -> WindowAxis:
    """The rows of S, as windows of one row: those of the input, padded if several products do."""
    if count == rows.out:
        return WindowAxis(rows.size, 1, out=rows.size)
    return replace(rows, kernel=1, stride=1, out=(rows.out - 1) * rows.stride + rows.extent)


def _row_bands(binding: Binding, plane: Plane) -> _Bands:
    """Matrices [channels, multiplier, output rows, (input rows, taps)]."""
    count = _rows_per_product(plane.rows, plane.columns)
    rows = plane.rows
    if count < rows.out:
        read = (count - 1) * rows.stride + rows.extent
        rows = replace(rows, size=read, begin=0, out=count)
    groups, multiplier, _, _, taps = plane.w.shape
    banded = _memory(binding, (groups, multiplier, count, rows.size, taps), plane.w.dtype)
    by_tap = np.moveaxis(banded, 4, 2)
    diagonals = (
        (_diagonal(by_tap, rows, tap, windows_last=False), plane.w[:, :, 0, tap, :, None])
        for tap in range(rows.kernel)
    )
    calls = _filling(binding, banded, diagonals)
    return _Bands(banded.reshape(groups, multiplier, count, rows.size * taps), calls)


def _diagonal(banded: Array, axis: WindowAxis, tap: int, *, windows_last: bool) -> Array:
    """The places of ``tap`` in the windows of ``axis``: one dimension instead of the last two.

    Those are the inputs and the windows of the axis, the windows last or first.
    """
    span = axis.span(tap)
    down, across = banded.strides[-2:] if windows_last else banded.strides[:-3:-1]
    source, first = (span.source, span.first) if windows_last else (span.first, span.source)
    strides = (*banded.strides[:-2], axis.stride * down + across)
    return as_strided(
        banded[..., source:, first:], (*banded.shape[:-2], span.size), strides, subok=True
    )


def _by_columns(binding: Binding, plane: Plane, bands: Array) -> Iterator[Call]:
    rows, columns = plane.rows, plane.columns
    multiplier, height, width = plane.out.shape[2:]
    count = bands.shape[2]
    per_row = width * plane.x.itemsize * (columns.kernel * rows.stride + multiplier)
    channels = max(1, _BLOCK_BYTES // (per_row * height))
    length = height
    if channels == 1:
        length = min(height, max(1, _BLOCK_BYTES // (per_row * count)) * count)
    channels = min(channels, plane.w.shape[0])
    lines = _lines(rows, count)
    most = lines.out if length == height else (length - 1) * rows.stride + rows.extent
    s = binding.scratch.take((channels, most, columns.kernel, width), plane.x.dtype)
    shifted = np.moveaxis(s, 2, 1)
    yield from fill_columns(shifted, columns)
    for block in _blocks(plane, channels, length):
        rest = height - block.row
        read = most if rest >= length else (rest - 1) * rows.stride + rows.extent
        target = shifted[: len(block.x), :, :read]
        yield from expand_rows(block.x, target, lines, block.row * rows.stride, columns)
        yield from _tiles(bands[block.channels], s[: len(block.x)], block.out, rows)
        yield from block.finish(binding)


def _tiles(bands: Array, s: Array, out: Array, rows: WindowAxis) -> Iterator[Call]:
    """Some rows of [channels, multiplier, H', W'] at a time: bands @ rows of s."""
    count, inner = bands.shape[2:]
    channels, multiplier, height, width = out.shape
    whole = height // count
    if whole:
        shape = (channels, multiplier, whole)
        step, row = count * rows.stride * s.strides[1], s.strides[2]
        sources = as_strided(
            s, (*shape, inner, width), (s.strides[0], 0, step, row, s.itemsize), subok=True
        )
        targets = out[:, :, : whole * count].reshape(*shape, count, width)
        yield partial(np.matmul, bands[:, :, None], sources, out=targets)
    rest = height - whole * count
    if rest:
        taps = s.shape[2]
        inner = ((rest - 1) * rows.stride + rows.extent) * taps
        first = whole * count * rows.stride * taps
        part = s.reshape(channels, 1, -1, width)[:, :, first : first + inner]
        yield partial(np.matmul, bands[:, :, :rest, :inner], part, out=out[:, :, whole * count :])


# -- whole rows ------------------------------------------------------------------------------------


def _column_bands(binding: Binding, plane: Plane) -> _Bands:
    """Matrices [channels, multiplier, (kernel height, input columns), output columns]."""
    columns = plane.columns
    groups, multiplier, _, height, _ = plane.w.shape
    shape = (groups, multiplier, height, columns.size, columns.out)
    banded = _memory(binding, shape, plane.w.dtype)
    diagonals = (
        (_diagonal(banded, columns, tap, windows_last=True), plane.w[:, :, 0, :, tap, None])
        for tap in range(columns.kernel)
    )
    calls = _filling(binding, banded, diagonals)
    return _Bands(banded.reshape(groups, multiplier, -1, columns.out), calls)


def _by_rows(binding: Binding, plane: Plane, bands: Array) -> Iterator[Call]:
    rows, columns = plane.rows, plane.columns
    multiplier, height, width = plane.out.shape[2:]
    size, inner = columns.size, rows.kernel * columns.size
    read = (height - 1) * rows.stride + rows.extent
    per_channel = plane.x.itemsize * (read * size + height * (inner + multiplier * width))
    channels = max(1, min(plane.w.shape[0], _BLOCK_BYTES // per_channel))
    padded = binding.scratch.take((channels, read, size), plane.x.dtype)
    windows = binding.scratch.take((channels, height, rows.kernel, size), plane.x.dtype)
    lines = replace(rows, kernel=1, stride=1, out=read)
    whole = WindowAxis(size, 1, out=size)
    down = padded.strides[1]
    strides = (padded.strides[0], rows.stride * down, rows.dilation * down, padded.itemsize)
    view = as_strided(padded, windows.shape, strides, subok=True)
    for block in _blocks(plane, channels, height):
        count = len(block.x)
        yield from expand_rows(block.x, padded[:count, None], lines, 0, whole)
        yield partial(np.copyto, windows[:count], view[:count])
        operand = windows[:count].reshape(count, 1, height, inner)
        yield partial(np.matmul, operand, bands[block.channels], out=block.out)
        yield from block.finish(binding)


def _by_tiles(binding: Binding, plane: Plane, bands: Array) -> Iterator[Call]:
    columns = plane.columns
    multiplier, _, width = plane.out.shape[2:]
    inner, tile = bands.shape[2:]
    whole = width // tile
    read = (width - 1) * columns.stride + columns.extent
    per_channel = plane.x.itemsize * (read + whole * inner + multiplier * width)
    channels = max(1, min(plane.w.shape[0], _BLOCK_BYTES // per_channel))
    padded = binding.scratch.take((channels, read), plane.x.dtype)
    tiles = binding.scratch.take((channels, whole, inner), plane.x.dtype)
    step = tile * columns.stride
    view = as_strided(
        padded,
        tiles.shape,
        (padded.strides[0], step * padded.itemsize, padded.itemsize),
        subok=True,
    )
    line = replace(columns, kernel=1, stride=1, out=read)
    yield from fill_columns(padded[:, None, None], line)
    for block in _blocks(plane, channels, 1):
        count, matrices = len(block.x), bands[block.channels]
        yield from expand_rows(block.x, padded[:count, None, None], plane.rows, 0, line)
        yield partial(np.copyto, tiles[:count], view[:count])
        target = block.out[:, :, 0, : whole * tile].reshape(count, multiplier, whole, tile)
        yield partial(np.matmul, tiles[:count, None], matrices, out=target)
        rest = block.out[..., whole * tile :]
        if rest.size:
            last = padded[:count, None, None, whole * step :]
            part = matrices[:, :, : last.shape[-1], : rest.shape[-1]]
            yield partial(np.matmul, last, part, out=rest)
        yield from block.finish(binding)


# -- blocks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Block:
    """Some channels, or some rows of them, of one image: x [channels, H, W] and what it becomes."""

    plane: Plane
    image: int
    channels: slice
    row: int
    length: int

    @property
    def x(self) -> Array:
        return self.plane.x[self.image, self.channels, 0]

    @property
    def out(self) -> Array:
        return self._part(self.plane.out)

    def _part(self, array: Array) -> Array:
        return array[self.image, self.channels, :, self.row : self.row + self.length]

    def finish(self, binding: Binding) -> list[Call]:
        """The epilogue."""
        plane = self.plane
        bias = None if plane.bias is None else plane.bias[self.channels]
        residual = None if plane.residual is None else self._part(plane.residual)
        return epilogue_calls(binding, self.out, (bias, residual))


def _blocks(plane: Plane, channels: int, length: int) -> Iterator[_Block]:
    """Even blocks of at most ``channels`` channels and ``length`` rows."""
    images, groups, _, height = plane.out.shape[:4]
    channels = -(-groups // -(-groups // channels))
    for image in range(images):
        for first in range(0, groups, channels):
            for row in range(0, height, length):
                part = slice(first, min(first + channels, groups))
                yield _Block(plane, image, part, row, length)
