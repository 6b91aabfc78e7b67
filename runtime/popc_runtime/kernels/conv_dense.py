"""Dense and grouped convolution as matrix products over shifted copies of the input.

The input is expanded by the taps *along a row* only: S holds, for each channel and each tap j, the
input shifted by j.  A tap i across rows then is a window of S that BLAS can read in place, because
the rows of S lie one behind the other:

    out[y] = sum over i of  W[:, :, i, :] @ S[..., i + y]

so S is kernel-height times smaller than the matrix of all windows (im2col).  Where the products
would be too flat to be worth adding up, S holds the taps across rows as well.  Blocks of output
rows are sized so that S stays in the cache.  A convolution that reads single elements of its rows
needs no S at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.binding import Binding, Call
from popc_runtime.kernels.epilogue import epilogue_calls, has_epilogue
from popc_runtime.kernels.expansion import expand_rows, fill_columns
from popc_runtime.kernels.matmul import blas_ready, merged_view
from popc_runtime.kernels.windows import Axis

__all__ = ["Plane", "Weights", "dense_calls"]

_EXPANDED_BYTES: Final = 2 << 20  # of S in one block
_RESULT_BYTES: Final = 1 << 20  # of the output in one block, if an epilogue follows
_FEWEST_COLUMNS: Final = 512  # of a product: BLAS is slow on narrow ones
# Taps across rows are expanded too if a product sums over less than this many elements per output
# channel: the copies then cost less than adding up the products.
_FLAT: Final = 1.4


@dataclass(frozen=True, slots=True)
class Plane:
    """A convolution over rows and columns.

    Attributes:
        x: [N, groups, channels, (taps along other axes)..., H, W].
        w: [groups, outputs, channels, (taps along other axes)..., kernel height, width].
        out: [N, groups, outputs, H', W'].
        residual: Like ``out``, to be added to it.
        rows, columns: The axes.
        key: Which taps along other axes ``w`` is cut to.
    """

    x: Array
    w: Array
    out: Array
    residual: Array | None
    rows: Axis
    columns: Axis
    key: tuple[tuple[int, int], ...] = ()

    @property
    def summed(self) -> int:
        """Channels and taps along other axes."""
        return prod(self.w.shape[2:-2])

    @property
    def is_folded(self) -> bool:
        """Whether S holds the taps across rows, so that one product does it all."""
        kernel = self.columns.kernel
        return self.rows.kernel == 1 or self.summed * kernel < _FLAT * self.w.shape[1]


@dataclass(slots=True)
class Weights:
    """Matrices [groups, outputs, summed] of weights, packed while binding if they are constant."""

    binding: Binding
    calls: list[Call] = field(default_factory=list["Call"])
    packed: dict[object, Array] = field(default_factory=dict["object", "Array"])

    def matrices(self, plane: Plane) -> list[Array]:
        """One matrix, or one for each tap across rows."""
        if plane.is_folded:
            return [self._matrix((plane.key, -1), plane.w)]
        taps = range(plane.rows.kernel)
        return [self._matrix((plane.key, tap), plane.w[..., tap, :]) for tap in taps]

    def _matrix(self, key: object, part: Array) -> Array:
        if key not in self.packed:
            shape = (*part.shape[:2], prod(part.shape[2:]))
            view = merged_view(part, shape) if part.size else part.reshape(shape)
            self.packed[key] = self._copy(part).reshape(shape) if view is None else view
        return self.packed[key]

    def _copy(self, part: Array) -> Array:
        if self.binding.is_constant(1):
            return np.ascontiguousarray(part)
        copy = self.binding.scratch.take(part.shape, part.dtype)
        self.calls.append(partial(np.copyto, copy, part))
        return copy


def dense_calls(binding: Binding, planes: Sequence[Plane]) -> tuple[Call, ...]:
    """The calls of a convolution that consists of ``planes``."""
    weights = Weights(binding)
    parts = [(part, weights.matrices(part)) for plane in planes for part in _narrowed(plane)]
    calls = list(weights.calls)
    bias = binding.optional(2)
    if bias is not None:
        bias = bias.reshape(*planes[0].w.shape[:2], 1, 1)
    mark = binding.scratch.mark()
    for plane, matrices in parts:
        binding.scratch.rewind(mark)
        source = _in_place(plane)
        if source is None:
            calls += _expanded(binding, plane, matrices, bias)
        else:
            calls += _from_source(binding, *source, matrices, bias)
    return tuple(calls)


def _narrowed(plane: Plane) -> Iterator[Plane]:
    """A plane of one very long row as several of shorter ones."""
    per_column = plane.x.itemsize * plane.w.shape[0] * plane.summed * plane.columns.kernel
    width = max(_FEWEST_COLUMNS, _EXPANDED_BYTES // max(per_column, 1))
    if plane.rows.out > 1 or plane.columns.out <= 2 * width:
        yield plane
        return
    axis = plane.columns
    for start in range(0, axis.out, width):
        stop = min(start + width, axis.out)
        low = start * axis.stride - axis.begin
        high = (stop - 1) * axis.stride + axis.extent - axis.begin
        first, last = (min(max(end, 0), axis.size) for end in (low, high))
        columns = replace(axis, size=last - first, begin=first - low, out=stop - start)
        residual = None if plane.residual is None else plane.residual[..., start:stop]
        x, out = plane.x[..., first:last], plane.out[..., start:stop]
        yield replace(plane, x=x, out=out, residual=residual, columns=columns)


# -- without S -------------------------------------------------------------------------------------


def _in_place(plane: Plane) -> tuple[Plane, Array] | None:
    """The plane and its input [N, groups, summed, H * W], if products can read that as it lies."""
    rows, columns = plane.rows, plane.columns
    is_plain = columns.is_plain and rows.stride == 1 and rows.begin == 0
    reach = (rows.out - 1) * rows.stride + rows.extent
    if not is_plain or reach > rows.size or (plane.is_folded and rows.kernel > 1):
        return None
    batch, groups = plane.x.shape[:2]
    elements = rows.size * columns.size
    source = merged_view(plane.x, (batch, groups, plane.summed, elements)) if plane.x.size else None
    if source is None or not blas_ready(source):
        return None
    if rows.kernel > 1:
        return plane, source
    # Single elements: any cut of the plane will do, so let it be a plane of one column.
    line = Axis(elements, 1, out=elements)
    shape = (*plane.out.shape[:3], elements, 1)
    residual = plane.residual
    if residual is not None:
        residual = merged_view(residual, shape)
    if plane.residual is not None and residual is None:
        return plane, source
    single = Axis(1, 1, out=1)
    out = plane.out.reshape(shape)
    return replace(plane, out=out, residual=residual, rows=line, columns=single), source


def _from_source(
    binding: Binding, plane: Plane, source: Array, matrices: Sequence[Array], bias: Array | None
) -> Iterator[Call]:
    height, width = plane.out.shape[-2:]
    block = height
    if has_epilogue(binding, (bias, plane.residual)) or len(matrices) > 1:
        per_row = prod(plane.out.shape[1:3]) * width * plane.out.itemsize
        block = _even(height, max(_RESULT_BYTES // per_row, -(-_FEWEST_COLUMNS // width)))
    images = _images(plane, _RESULT_BYTES // plane.out[0].nbytes) if block == height else 1
    shape = (images, *plane.out.shape[1:3], block * width)
    product = binding.scratch.take(shape, plane.out.dtype) if len(matrices) > 1 else None
    for first in range(0, len(plane.out), images):
        for start in range(0, height, block):
            place = slice(first, first + images), slice(start, start + block)
            offsets = [(start + tap * plane.rows.dilation) * width for tap in range(len(matrices))]
            yield from _products(plane, place, source[place[0]], matrices, offsets, product)
            yield from _finish(binding, plane, place, bias)


def _even(count: int, most: int) -> int:
    """The length of equal parts of ``count`` that are at most ``most`` long."""
    return -(-count // -(-count // max(1, most)))


def _images(plane: Plane, limit: int) -> int:
    """How many images of the batch to work on at once, if ``limit`` fit the cache."""
    return max(1, min(len(plane.out), limit))


def _products(
    plane: Plane,
    place: tuple[slice, slice],
    source: Array,
    matrices: Sequence[Array],
    offsets: Sequence[int],
    product: Array | None,
) -> Iterator[Call]:
    """The block of ``out`` at ``place`` = sum of matrix @ source[..., offset:]."""
    block = plane.out[place[0], :, :, place[1]]
    target = block.reshape(*block.shape[:3], -1)
    length = target.shape[-1]
    for number, (matrix, offset) in enumerate(zip(matrices, offsets, strict=True)):
        columns = source[..., offset : offset + length]
        if number == 0:
            yield partial(np.matmul, matrix, columns, out=target)
        elif product is not None:
            part = product[: len(target), ..., :length]
            yield partial(np.matmul, matrix, columns, out=part)
            yield partial(np.add, target, part, out=target)


def _finish(
    binding: Binding, plane: Plane, place: tuple[slice, slice], bias: Array | None
) -> list[Call]:
    index = (place[0], slice(None), slice(None), place[1])
    residual = None if plane.residual is None else plane.residual[index]
    return epilogue_calls(binding, plane.out[index], (bias, residual))


# -- with S ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where S keeps the rows of the input.

    Attributes:
        strips: Each holds every ``stride``-th row from another one on: the taps across rows that
            differ by a multiple of the stride read the same strip.
        reach: Rows that a strip holds beyond those of the block.
        taps: For each product, its strip and its first row in there.
    """

    strips: tuple[Axis, ...]
    reach: tuple[int, ...]
    taps: tuple[tuple[int, int], ...]

    def rows(self, block: int) -> int:
        """Rows of S for ``block`` rows of output."""
        return sum(block + reach for reach in self.reach)

    def offsets(self, block: int) -> list[int]:
        """Row of S at which each product begins, if strips are ``block`` rows long."""
        starts = [sum(block + reach for reach in self.reach[:i]) for i in range(len(self.strips))]
        return [starts[strip] + row for strip, row in self.taps]


def _layout(plane: Plane) -> _Layout:
    rows = plane.rows
    taps = [tap * rows.dilation for tap in range(rows.kernel)]
    if plane.is_folded:  # one product: strips are the taps, each with its own rows of operand
        strips = tuple(_strip(rows, tap, 0) for tap in taps)
        return _Layout(strips, (0,) * len(strips), ((0, 0),))
    phases = sorted({tap % rows.stride for tap in taps})
    reach = tuple(max(t // rows.stride for t in taps if t % rows.stride == p) for p in phases)
    strips = tuple(_strip(rows, p, more) for p, more in zip(phases, reach, strict=True))
    places = tuple((phases.index(tap % rows.stride), tap // rows.stride) for tap in taps)
    return _Layout(strips, reach, places)


def _strip(rows: Axis, tap: int, reach: int) -> Axis:
    """The rows that ``tap`` reads, as windows of one row, and ``reach`` more."""
    return replace(rows, kernel=1, begin=rows.begin - tap, out=rows.out + reach)


def _expanded(
    binding: Binding, plane: Plane, matrices: Sequence[Array], bias: Array | None
) -> Iterator[Call]:
    """Blocks of rows, or of images: expand into S, multiply, finish."""
    height, width = plane.out.shape[-2:]
    layout = _layout(plane)
    per_row = plane.x.itemsize * width * prod(plane.x.shape[1:-2]) * plane.columns.kernel
    block = _EXPANDED_BYTES // max(per_row * len(layout.strips), 1) - max(layout.reach)
    block = _even(height, max(block, -(-_FEWEST_COLUMNS // width)))
    fitting = _EXPANDED_BYTES // max(1, per_row * layout.rows(block))
    images = _images(plane, fitting) if block == height else 1
    s, strips = _take(binding, plane, layout, images, block)
    product = None
    if len(matrices) > 1:
        shape = (images, *plane.out.shape[1:3], block * width)
        product = binding.scratch.take(shape, s.dtype)
    for strip in strips:
        yield from fill_columns(strip, plane.columns)
    for first in range(0, len(plane.out), images):
        for start in range(0, height, block):
            place = slice(first, first + images), slice(start, min(start + block, height))
            x = plane.x[place[0]]
            for strip, rows, reach in zip(strips, layout.strips, layout.reach, strict=True):
                target = strip[: len(x), ..., : place[1].stop - start + reach, :]
                yield from expand_rows(x, target, rows, start, plane.columns)
            offsets = [row * width for row in layout.offsets(block)]
            yield from _products(plane, place, s[: len(x)], matrices, offsets, product)
            yield from _finish(binding, plane, place, bias)


def _take(
    binding: Binding, plane: Plane, layout: _Layout, images: int, block: int
) -> tuple[Array, list[Array]]:
    """S [images, groups, summed, rows * columns], and its strips [..., taps, rows, columns]."""
    lead = (images, *plane.x.shape[1:-2])
    width, taps = plane.out.shape[-1], plane.columns.kernel
    if plane.is_folded:
        s = binding.scratch.take((*lead, len(layout.strips), taps, block, width), plane.x.dtype)
        strips = [s[..., number, :, :, :] for number in range(len(layout.strips))]
    else:
        s = binding.scratch.take((*lead, taps, layout.rows(block), width), plane.x.dtype)
        ends = np.cumsum([block + reach for reach in layout.reach])
        strips = list(np.split(s, ends[:-1], axis=-2))
    summed = prod(s.shape[2:-2])
    return s.reshape(*s.shape[:2], summed, s.shape[-2] * width), strips
