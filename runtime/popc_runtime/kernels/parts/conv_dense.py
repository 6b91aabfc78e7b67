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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call
from popc_runtime.kernels.core.bound import merged_view
from popc_runtime.kernels.core.copying import copy_calls
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.sharing import even_slices, share_count
from popc_runtime.kernels.matmul import blas_ready
from popc_runtime.kernels.parts.conv_plane import Plane, narrowed
from popc_runtime.kernels.parts.conv_rows import RowLayout, row_layout
from popc_runtime.kernels.parts.epilogue import epilogue_calls, has_epilogue
from popc_runtime.kernels.parts.expansion import expand_rows, fill_columns
from popc_runtime.kernels.parts.windows import WindowAxis

__all__ = ["EXPANDED_BYTES", "dense_calls", "source_in_place"]

EXPANDED_BYTES: Final = 1 << 20  # of S in one block
_RESULT_BYTES: Final = 1 << 20  # of the output in one block, if an epilogue follows
_FEWEST_COLUMNS: Final = 128  # of a product: BLAS is slow on narrow ones


def dense_calls(binding: Binding, planes: Sequence[Plane]) -> tuple[Call, ...]:
    """The calls of a convolution that consists of ``planes``."""
    weights = _Weights(binding)
    parts = [part for plane in planes for part in narrowed(plane, _longest_row(plane))]
    jobs = [_Job(part, weights.matrices(part)) for part in parts]
    jobs = [job.in_place() for job in jobs]
    count = share_count(multiplications=sum(job.multiplications for job in jobs))
    before = list(weights.calls)
    if count == 1 or len(jobs) >= count:
        shares = [jobs[part] for part in even_slices(len(jobs), count)]
    else:
        shares = []
        for job in jobs:
            calls, pieces = _cut(binding, job, -(-count // len(jobs)))
            before += calls
            shares += [[piece] for piece in pieces]
    chunks = [partial(_job_calls, binding, share) for share in shares]
    return (*before, *parallel_calls(binding.scratch, chunks))


def _longest_row(plane: Plane) -> int:
    """Columns for which one row of S is as long as a block may be."""
    groups = int(plane.w.shape[0])
    per_column = plane.x.itemsize * groups * plane.summed * plane.columns.kernel
    return max(_FEWEST_COLUMNS, EXPANDED_BYTES // max(per_column, 1))


@dataclass(slots=True)
class _Weights:
    """Matrices [groups, outputs, summed] of weights, packed while binding if they are constant."""

    binding: Binding
    calls: list[Call] = field(default_factory=list["Call"])
    packed: dict[object, Array] = field(default_factory=dict["object", "Array"])

    def matrices(self, plane: Plane) -> list[Array]:
        """One matrix, or one for each tap across rows."""
        if plane.folded:
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
        self.calls += copy_calls(copy, part)
        return copy


# -- shares ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Job:
    """A plane, or a part of one, and what computes it.

    Attributes:
        plane: What is computed.
        matrices: Of weights [groups, outputs, summed], one for each product.
        source: What they are multiplied with, [N, groups, summed, rows * W'], if that is at hand.
        taps: The row of ``source`` at which each product begins.
    """

    plane: Plane
    matrices: list[Array]
    source: Array | None = None
    taps: tuple[int, ...] = ()

    @property
    def multiplications(self) -> int:
        """The size of the work."""
        return self.plane.out.size * sum(int(matrix.shape[-1]) for matrix in self.matrices)

    def in_place(self) -> _Job:
        """The same with the input for a source, if products can read that as it lies."""
        plane, source = _with_source(self.plane)
        if source is None:
            return self
        taps = tuple(tap * plane.rows.dilation for tap in range(len(self.matrices)))
        return replace(self, plane=plane, source=source, taps=taps)

    def of_images(self, part: slice) -> _Job:
        """For some of the batch."""
        source = None if self.source is None else self.source[part]
        return replace(self, plane=self.plane.of_images(part), source=source)

    def of_groups(self, part: slice) -> _Job:
        """For some of the groups."""
        source = None if self.source is None else self.source[:, part]
        matrices = [matrix[part] for matrix in self.matrices]
        return replace(self, plane=self.plane.of_groups(part), matrices=matrices, source=source)

    def of_rows(self, part: slice) -> _Job:
        """For some rows of the output."""
        width = self.plane.out.shape[-1]
        source = None if self.source is None else self.source[..., part.start * width :]
        return replace(self, plane=self.plane.of_rows(part), source=source)

    def of_outputs(self, part: slice) -> _Job:
        """For some output channels of each group."""
        matrices = [matrix[:, part] for matrix in self.matrices]
        return replace(self, plane=self.plane.of_outputs(part), matrices=matrices)


def _cut(binding: Binding, job: _Job, count: int) -> tuple[Iterable[Call], list[_Job]]:
    """Parts of similar size, whose products are as wide as possible, and what to do before."""
    images, groups, outputs, height, width = job.plane.out.shape
    wide = height * width >= count * _FEWEST_COLUMNS
    ways = (
        (images, _Job.of_images),
        (groups, _Job.of_groups),
        (height if wide else 0, _Job.of_rows),
        (outputs, _Job.of_outputs),
    )
    length, part = next((way for way in ways if way[0] >= count), (0, _Job.of_images))
    if not length:
        return (), [job]
    calls: Iterable[Call] = ()
    if part is _Job.of_outputs and job.source is None:
        calls, job = _expanded_once(binding, job)
    return calls, [part(job, piece) for piece in even_slices(length, count)]


def _job_calls(binding: Binding, jobs: list[_Job]) -> Iterator[Call]:
    mark = binding.scratch.mark()
    for job in jobs:
        binding.scratch.rewind(mark)
        yield from _expanded(binding, job) if job.source is None else _from_source(binding, job)


# -- without S -------------------------------------------------------------------------------------


def _with_source(plane: Plane) -> tuple[Plane, Array | None]:
    """The plane, and its input if products can read that as it lies."""
    source = source_in_place(plane)
    if source is None:
        return plane, None
    return (_as_line(plane) if plane.rows.kernel == 1 else plane), source


def source_in_place(plane: Plane) -> Array | None:
    """The input as [N, groups, summed, H * W] if there are taps across rows only, one a product.

    A window then begins at an element of that line, and so do those of later positions.
    """
    rows, columns = plane.rows, plane.columns
    is_plain = columns.is_plain and rows.stride == 1 and rows.begin == 0
    reach = (rows.out - 1) * rows.stride + rows.extent
    together = plane.folded and rows.kernel > 1
    if together or not is_plain or reach > rows.size or plane.x.size == 0:
        return None
    batch, groups = plane.x.shape[:2]
    source = merged_view(plane.x, (batch, groups, plane.summed, rows.size * columns.size))
    return None if source is None or not blas_ready(source) else source


def _as_line(plane: Plane) -> Plane:
    """A plane of single elements as one of one column: then any cut of it will do."""
    elements = plane.rows.size * plane.columns.size
    shape = (*plane.out.shape[:3], elements, 1)
    residual = plane.residual
    if residual is not None:
        residual = merged_view(residual, shape)
        if residual is None:
            return plane
    line, single = WindowAxis(elements, 1, out=elements), WindowAxis(1, 1, out=1)
    out = plane.out.reshape(shape)
    return replace(plane, out=out, residual=residual, rows=line, columns=single)


def _from_source(binding: Binding, job: _Job) -> Iterator[Call]:
    plane, source = job.plane, job.source
    assert source is not None
    height, width = plane.out.shape[-2:]
    block = height
    if has_epilogue(binding, (plane.bias, plane.residual)) or len(job.matrices) > 1:
        per_row = prod(plane.out.shape[1:3]) * width * plane.out.itemsize
        block = _even(height, max(_RESULT_BYTES // per_row, -(-_FEWEST_COLUMNS // width)))
    images = _images(plane, _RESULT_BYTES // plane.out[0].nbytes) if block == height else 1
    product = _product_memory(binding, job, images, block)
    for first in range(0, len(plane.out), images):
        for start in range(0, height, block):
            place = slice(first, first + images), slice(start, start + block)
            offsets = [(start + tap) * width for tap in job.taps]
            yield from _products(job, place, source[place[0]], offsets, product)
            yield from _finish(binding, job, place)


def _even(count: int, most: int) -> int:
    """The length of equal parts of ``count`` that are at most ``most`` long."""
    return -(-count // -(-count // max(1, most)))


def _images(plane: Plane, limit: int) -> int:
    """The number of images of the batch to work on at once, if ``limit`` fit the cache."""
    return max(1, min(len(plane.out), limit))


def _product_memory(binding: Binding, job: _Job, images: int, block: int) -> Array | None:
    """The memory of products before they are added up, if there are several."""
    if len(job.matrices) == 1:
        return None
    out = job.plane.out
    return binding.scratch.take((images, *out.shape[1:3], block * out.shape[-1]), out.dtype)


def _products(
    job: _Job,
    place: tuple[slice, slice],
    source: Array,
    offsets: Sequence[int],
    product: Array | None,
) -> Iterator[Call]:
    """The block of ``out`` at ``place`` = sum of matrix @ source[..., offset:]."""
    block = job.plane.out[place[0], :, :, place[1]]
    target = block.reshape(*block.shape[:3], -1)
    length = target.shape[-1]
    for number, (matrix, offset) in enumerate(zip(job.matrices, offsets, strict=True)):
        columns = source[..., offset : offset + length]
        if number == 0:
            yield partial(np.matmul, matrix, columns, out=target)
        elif product is not None:
            part = product[: len(target), ..., :length]
            yield partial(np.matmul, matrix, columns, out=part)
            yield partial(np.add, target, part, out=target)


def _finish(binding: Binding, job: _Job, place: tuple[slice, slice]) -> list[Call]:
    plane, index = job.plane, (place[0], slice(None), slice(None), place[1])
    residual = None if plane.residual is None else plane.residual[index]
    return epilogue_calls(binding, plane.out[index], (plane.bias, residual))


# -- with S ----------------------------------------------------------------------------------------


def _expanded(binding: Binding, job: _Job) -> Iterator[Call]:
    """Blocks of rows, or of images: expand into S, multiply, finish."""
    plane, layout = job.plane, row_layout(job.plane)
    height, width = plane.out.shape[-2:]
    per_row = plane.x.itemsize * width * prod(plane.x.shape[1:-2]) * plane.columns.kernel
    block = EXPANDED_BYTES // max(per_row * len(layout.strips), 1) - max(layout.reach)
    block = _even(height, max(block, -(-_FEWEST_COLUMNS // width)))
    fitting = EXPANDED_BYTES // max(1, per_row * layout.rows(block))
    images = _images(plane, fitting) if block == height else 1
    s, strips = _take(binding, plane, layout, images, block)
    product = _product_memory(binding, job, images, block)
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
            yield from _products(job, place, s[: len(x)], offsets, product)
            yield from _finish(binding, job, place)


def _expanded_once(binding: Binding, job: _Job) -> tuple[list[Call], _Job]:
    """The whole plane expanded into S, which several products then share."""
    plane, layout = job.plane, row_layout(job.plane)
    height = plane.out.shape[-2]
    s, strips = _take(binding, plane, layout, len(plane.x), height)
    calls: list[Call] = []
    for strip, rows in zip(strips, layout.strips, strict=True):
        calls += fill_columns(strip, plane.columns)
        calls += expand_rows(plane.x, strip, rows, 0, plane.columns)
    return calls, replace(job, source=s, taps=tuple(layout.offsets(height)))


def _take(
    binding: Binding, plane: Plane, layout: RowLayout, images: int, block: int
) -> tuple[Array, list[Array]]:
    """S [images, groups, summed, rows * columns], and its strips [..., taps, rows, columns]."""
    lead = (images, *plane.x.shape[1:-2])
    width, taps = plane.out.shape[-1], plane.columns.kernel
    if plane.folded:
        s = binding.scratch.take((*lead, len(layout.strips), taps, block, width), plane.x.dtype)
        strips = [s[..., number, :, :, :] for number in range(len(layout.strips))]
    else:
        s = binding.scratch.take((*lead, taps, layout.rows(block), width), plane.x.dtype)
        ends = np.cumsum([block + reach for reach in layout.reach])
        strips = list(np.split(s, ends[:-1], axis=-2))
    summed = prod(s.shape[2:-2])
    return s.reshape(*s.shape[:2], summed, s.shape[-2] * width), strips
