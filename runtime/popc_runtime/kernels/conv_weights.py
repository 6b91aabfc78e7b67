"""The gradient of a convolution's weights: products of the result's gradient with windows.

    grad W[:, :, i, :] = sum over images and rows of  dY @ S[..., i + y].T

where S holds the input shifted by the taps along a row, as in `conv_dense`.  What is summed over is
the positions of the windows.  Blocks of rows keep S in the cache; where images are small, several
are put one behind the other, since short products are slow and their results must be added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.bound import merged_view
from popc_runtime.kernels.core.copying import copy_calls
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.sharing import even_slices, share_count
from popc_runtime.kernels.matmul import blas_ready
from popc_runtime.kernels.parts.conv_dense import EXPANDED_BYTES, source_in_place
from popc_runtime.kernels.parts.conv_plane import Plane, grouped, narrowed, planes
from popc_runtime.kernels.parts.conv_rows import row_layout
from popc_runtime.kernels.parts.epilogue import in_float32
from popc_runtime.kernels.parts.expansion import expand_rows, fill_columns
from popc_runtime.kernels.parts.partials import adds_up_in_half, half_weights_grad
from popc_runtime.kernels.parts.windows import WindowAxis, window_axes

__all__ = ["KERNELS"]

_SHORTEST: Final = 192  # positions that one product should sum over at least
_MOST_ADDED: Final = 8  # elements of the input per weight, from which on shares may have own sums
_PRODUCTS: Final = 1 << 16  # elements of the products of several images at once
_WIDE: Final = 128  # rows of a product that BLAS multiplies as fast as more
_STORING: Final = 4  # what storing a weight costs, as elements of a plain copy
_NARROW: Final = 24  # summed elements for which products of single rows of taps are slow
_FEWEST_COLUMNS: Final = 48  # of the product of a share


def _weights_grad(binding: Binding) -> Calls:
    """dY [N, M, *windows], X [N, C, *sizes]: the gradient of W [M, C / group, *kernel]."""
    if adds_up_in_half(binding):
        return half_weights_grad(_weights_grad, binding)
    group, result = binding.integer("group", 1), binding.output()
    dy, x = (grouped(binding.input(index), 1, group) for index in range(2))
    if dy.size == 0 or x.size == 0:
        return partial(result.fill, 0)
    out = grouped(result, 0, group)
    axes = window_axes(binding, x.shape[3:], out.shape[3:], dy.shape[3:])
    if len(axes) == 1:
        dy, x, out = (array[:, :, :, None] for array in (dy, x, out))
        axes = (WindowAxis(1, 1, out=1), *axes)
    order = _Order.of(out)
    count = share_count(multiplications=dy.size * prod(out.shape[2:]), elements=2 * x.size)
    cuts = _cuts(x, out, count)
    numbers = 1 + max(number for number, *_ in cuts)
    sums = binding.scratch.take((numbers, *order.arrange(out).shape), out.dtype)
    chunks: list[Callable[[], Iterable[Call]]] = []
    for number, images, groups, channels in cuts:
        total = order.restore(sums[number])
        operands = (x[images, groups, channels], total[groups, :, channels], dy[images, groups])
        chunks.append(partial(_share_calls, binding, order, *operands, axes))
    calls = parallel_calls(binding.scratch, chunks)
    added = (partial(np.add, sums[0], other, out=sums[0]) for other in sums[1:])
    natural = order.restore(sums[0])
    parts = even_slices(out.shape[1], share_count(elements=_STORING * out.size))
    stores = [partial(copy_calls, out[:, part], natural[:, part]) for part in parts]
    return (*calls, *added, *parallel_calls(binding.scratch, stores))


@dataclass(frozen=True, slots=True)
class _Order:
    """The order of products in memory.

    Attributes:
        axes: Of [groups, outputs, channels, ..., height, width], in the order of the products.
        folded: Whether one product has the taps across rows, or each its own.
        outputs_first: Whether the outputs are the rows of products.
    """

    axes: tuple[int, ...]
    folded: bool
    outputs_first: bool

    @classmethod
    def of(cls, w: Array) -> _Order:
        """The fastest for weights like ``w``: BLAS prefers products with many rows."""
        outputs, height = int(w.shape[1]), int(w.shape[-2])
        summed = prod(w.shape[2:-2]) * int(w.shape[-1])
        single = outputs == 1 and summed == w.shape[-1]
        folded = height > 1 and summed < _NARROW and not single
        summed *= height if folded else 1
        outputs_first = outputs >= min(summed, _WIDE)
        last = w.ndim - 1
        inner = [*range(2, last - 1), *([last - 1] if folded else []), last]
        both = [1, *inner] if outputs_first else [*inner, 1]
        return cls((*([] if folded else [last - 1]), 0, *both), folded, outputs_first)

    def arrange(self, w: Array) -> Array:
        """[groups, outputs, channels, ..., height, width] as [products, groups, ...]."""
        arranged = w.transpose(self.axes)
        return arranged[None] if self.folded else arranged

    def restore(self, products: Array) -> Array:
        """The inverse of `arrange`."""
        return (products[0] if self.folded else products).transpose(np.argsort(self.axes))


def _cuts(x: Array, out: Array, count: int) -> list[tuple[int, slice, slice, slice]]:
    """Shares of the work: which sums they add to, and their images, groups and channels."""
    images, groups, channels = x.shape[:3]
    every = slice(None)
    cheap = images >= count and out.size * _MOST_ADDED <= x.size
    if not cheap and groups >= count:
        return [(0, every, part, every) for part in even_slices(groups, count)]
    if not cheap and channels * out.shape[-1] >= count * _FEWEST_COLUMNS:
        return [(0, every, every, part) for part in even_slices(channels, count)]
    parts = even_slices(images, min(images, count))
    return [(number, part, every, every) for number, part in enumerate(parts)]


def _share_calls(
    binding: Binding, order: _Order, x: Array, total: Array, dy: Array, axes: Sequence[WindowAxis]
) -> Iterator[Call]:
    """The sum over ``x`` and ``dy`` into ``total`` [groups, outputs, channels, *kernel]."""
    mark = binding.scratch.mark()
    parts = [
        replace(piece, folded=order.folded)
        for plane in planes(x, total, dy, axes)
        for piece in narrowed(plane, _longest_row(plane))
    ]
    # Taps that lie outside everywhere belong to no plane.
    add = len(parts) != 1 or parts[0].w.size < total.size
    if add:
        yield partial(total.fill, 0)
    for plane in parts:
        for groups in _group_blocks(plane):
            binding.scratch.rewind(mark)
            part = plane.of_groups(groups)
            yield from _plane_calls(binding, order, part, add=add)


def _per_column(plane: Plane) -> int:
    """Bytes of S for each position of a row, in one group."""
    return plane.x.itemsize * plane.summed * plane.columns.kernel


def _longest_row(plane: Plane) -> int:
    return max(_SHORTEST, EXPANDED_BYTES // max(1, _per_column(plane)))


def _group_blocks(plane: Plane) -> list[slice]:
    groups, width = plane.w.shape[0], plane.out.shape[-1]
    rows = row_layout(plane).rows(max(plane.rows.out, 1))
    size = groups * _per_column(plane) * rows * width
    return even_slices(groups, min(groups, max(1, size // EXPANDED_BYTES)))


# What makes operands ready, dY [images, groups, outputs, L] and, for each product, the windows
# [images, groups, summed, L].  Small images are one behind the other in L, and count as one.
_Operands: TypeAlias = "tuple[Sequence[Call], Array, list[Array]]"


def _plane_calls(binding: Binding, order: _Order, plane: Plane, *, add: bool) -> Iterator[Call]:
    """Add the products of all blocks to ``plane.w``, or begin with the first."""
    total = order.arrange(plane.w)
    if total.size == 0:
        return
    at_once = _AtOnce.of(plane)
    batch = 1 if at_once.merged else at_once.images
    products = binding.scratch.take((len(total), batch, *total.shape[1:]), total.dtype)
    matrices = products.reshape(*products.shape[:3], *_matrix_shape(order, plane))
    added = products[:, 0] if batch == 1 else binding.scratch.take(total.shape, total.dtype)
    source = None if at_once.merged else source_in_place(plane)
    if source is None:
        blocks = _expanded(binding, plane, at_once)
    else:
        blocks = _from_source(binding, plane, source, at_once)
    for before, dy, windows in blocks:
        yield from before
        for taps, results in zip(windows, matrices, strict=True):
            yield _product(order, dy, taps, results[: len(dy)])
        if batch > 1:
            yield partial(np.add.reduce, products[:, : len(dy)], 1, None, added)
        yield partial(np.add, total, added, out=total) if add else partial(np.copyto, total, added)
        add = True


def _matrix_shape(order: _Order, plane: Plane) -> tuple[int, int]:
    outputs, rows = int(plane.w.shape[1]), plane.rows.kernel if order.folded else 1
    summed = plane.summed * plane.columns.kernel * rows
    return (outputs, summed) if order.outputs_first else (summed, outputs)


def _product(order: _Order, dy: Array, taps: Array, out: Array) -> Call:
    left, right = (dy, taps) if order.outputs_first else (taps, dy)
    if dy.shape[2] == 1:
        return partial(np.vecdot, left[..., None, :], right[..., None, :, :], out=out)
    return partial(np.matmul, left, right.swapaxes(-1, -2), out=out)


@dataclass(frozen=True, slots=True)
class _AtOnce:
    """The extent of one block.

    Attributes:
        images: How many of the batch.
        merged: Whether one product sums over all of them.
        rows: Of the result.
    """

    images: int
    merged: bool
    rows: int

    @classmethod
    def of(cls, plane: Plane) -> _AtOnce:
        """Take what the cache holds; images are merged if they are too small for products."""
        height, width = plane.out.shape[-2:]
        layout = row_layout(plane)
        per_row = plane.w.shape[0] * _per_column(plane) * width
        fitting = max(1, EXPANDED_BYTES // (per_row * layout.rows(height)))
        needed = -(-_SHORTEST // (height * width))
        if needed > 1 and plane.out.shape[2] > 1:
            return cls(min(len(plane.x), max(needed, fitting)), merged=True, rows=height)
        images = min(len(plane.x), fitting, max(1, _PRODUCTS // plane.w.size))
        if images > 1:
            return cls(images, merged=False, rows=height)
        strips = len(layout.strips)
        rows = EXPANDED_BYTES // (per_row * strips) - max(layout.reach)
        rows = max(rows, -(-_SHORTEST // width))
        return cls(1, merged=False, rows=-(-height // -(-height // rows)))


def _from_source(
    binding: Binding, plane: Plane, source: Array, at_once: _AtOnce
) -> Iterator[_Operands]:
    """From ``source`` [N, groups, summed, H * W]."""
    width = plane.columns.out
    starts = [tap * plane.rows.dilation * width for tap in range(plane.rows.kernel)]
    mark = binding.scratch.mark()
    for first in range(0, len(source), at_once.images):
        binding.scratch.rewind(mark)
        part = slice(first, first + at_once.images)
        before, dy = _lines(binding, plane.out[part])
        x = source[part]
        yield before, dy, [x[..., start : start + dy.shape[-1]] for start in starts]


def _expanded(binding: Binding, plane: Plane, at_once: _AtOnce) -> Iterator[_Operands]:
    """From S, which holds some rows of an image, or several images."""
    layout, reach = row_layout(plane), max(row_layout(plane).reach)
    strips, lines = _take(binding, plane, at_once, len(layout.strips), at_once.rows + reach)
    rows = [replace(strip, out=plane.rows.out + reach) for strip in layout.strips]
    calls = [call for strip in strips for call in fill_columns(strip, plane.columns)]
    mark = binding.scratch.mark()
    for first in range(0, len(plane.x), at_once.images):
        for start in range(0, plane.rows.out, at_once.rows):
            binding.scratch.rewind(mark)
            part = plane.of_images(slice(first, first + at_once.images))
            out = part.out[..., start : start + at_once.rows, :]
            for strip, axis in zip(strips, rows, strict=True):
                target = strip[: len(out), ..., : out.shape[-2] + reach, :]
                calls += expand_rows(part.x, target, axis, start, plane.columns)
            copies, dy = _merged(binding, out, reach) if at_once.merged else _lines(binding, out)
            starts = [(strip, row * out.shape[-1]) for strip, row in layout.taps]
            windows = [lines[strip, : len(dy), ..., at : at + dy.shape[-1]] for strip, at in starts]
            yield [*calls, *copies], dy, windows
            calls = []


def _take(
    binding: Binding, plane: Plane, at_once: _AtOnce, strips: int, rows: int
) -> tuple[Array, Array]:
    """Memory of S: strips [strips, images, groups, channels, ..., taps, rows, columns]; as lines.

    Those are [strips, images, groups, summed, L], or [1, ...] if one product has all strips.
    """
    lead = plane.x.shape[1:-2]
    batch, merged = (1, at_once.images) if at_once.merged else (at_once.images, 1)
    inner = (plane.columns.kernel, merged, rows, plane.columns.out)
    shape = (batch, *lead, strips, *inner) if plane.folded else (strips, batch, *lead, *inner)
    s = binding.scratch.take(shape, plane.x.dtype)
    lines = s.reshape(1 if plane.folded else strips, batch, lead[0], -1, prod(inner[1:]))
    by_strip = np.moveaxis(s, -5, 0) if plane.folded else s
    by_image = by_strip[:, 0] if at_once.merged else by_strip[..., 0, :, :]
    return np.moveaxis(by_image, -3, 1) if at_once.merged else by_image, lines


def _lines(binding: Binding, dy: Array) -> tuple[tuple[Call, ...], Array]:
    """[images, groups, outputs, rows, columns] as [images, groups, outputs, positions]."""
    shape = (*dy.shape[:3], dy.shape[3] * dy.shape[4])
    view = merged_view(dy, shape)
    if view is not None and blas_ready(view):
        return (), view
    line = binding.scratch.take(shape, dy.dtype)
    return copy_calls(line.reshape(dy.shape), dy), line


def _merged(binding: Binding, dy: Array, reach: int) -> tuple[tuple[Call, ...], Array]:
    """The same with all images in one line.

    Between images are ``reach`` rows of zeros: there S holds rows that no window begins at.
    """
    images, groups, outputs, rows, width = dy.shape
    line = binding.scratch.take((groups, outputs, images, rows + reach, width), dy.dtype)
    calls = copy_calls(line[..., :rows, :], np.moveaxis(dy, 0, 2))
    end = (images * (rows + reach) - reach) * width
    flat = line.reshape(1, groups, outputs, -1)[..., :end]
    return (*calls, partial(line[..., rows:, :].fill, 0)) if reach else calls, flat


KERNELS: Final[dict[str, Kernel]] = {"ConvWeightsGrad": in_float32(_weights_grad)}
