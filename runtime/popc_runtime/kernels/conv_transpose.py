"""Transposed convolution and Col2Im: windows that are written instead of read.

A transposed convolution is one matrix product, whose rows are the taps, and then a sum of each tap
into the elements that its windows cover.  Blocks of input rows keep the product in the cache.

If windows move by one element, each element also reads a window of the input: then it is a
convolution with mirrored weights, which has fewer sums to store.  So is one over single channels
with zeros between the elements of its input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.conv import convolution_calls
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.bound import merged_view
from popc_runtime.kernels.core.copying import as_contiguous
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.sharing import even_slices, share_count
from popc_runtime.kernels.parts.conv_plane import grouped, planes
from popc_runtime.kernels.parts.epilogue import epilogue_calls, in_float32
from popc_runtime.kernels.parts.partials import adds_up_in_half, half_convolution
from popc_runtime.kernels.parts.windows import WindowAxis, tap_places, window_axes

__all__ = ["KERNELS"]

_WIDE_BYTES: Final = 1 << 22  # of images with zeros between their elements
_PRODUCT_BYTES: Final = 1 << 20  # of the matrix product in one block


def _conv_transpose(binding: Binding) -> Calls:
    """X [N, C, *sizes], W [C, M / group, *kernel], [B [M]]; ``pads`` crop the output."""
    if binding.output().size == 0:
        return ()
    if adds_up_in_half(binding):
        return half_convolution(_conv_transpose, binding, transposed=True)
    group = binding.integer("group", 1)
    x, out = grouped(binding.input(0), 1, group), grouped(binding.output(), 1, group)
    axes = window_axes(binding, out.shape[3:], binding.input(1).shape[2:], x.shape[3:])
    bias = binding.optional(2)
    if bias is not None:
        bias = bias.reshape(*out.shape[1:3], *(1 for _ in out.shape[3:]))
    w = grouped(binding.input(1), 0, group)
    if x.size and _is_better_mirrored(w, axes):
        return _mirrored(binding, x, w, out, bias, axes)
    contiguous, packing = as_contiguous(binding, 1)
    taps = grouped(contiguous, 0, group).reshape(*w.shape[:3], prod(w.shape[3:]))
    chunks = [partial(_part_calls, binding, part, axes) for part in _Part(x, taps, out, bias).cut()]
    return (*packing, *parallel_calls(binding.scratch, chunks))


def _is_better_mirrored(w: Array, axes: Sequence[WindowAxis]) -> bool:
    """True if reading windows costs less than writing them: w [groups, channels, outputs, ...]."""
    groups, channels, outputs = w.shape[:3]
    if groups > 1 and channels == 1 and len(axes) <= 2:
        return True
    height = prod(axis.kernel for axis in axes[:-1])
    return all(axis.stride == 1 for axis in axes) and outputs * height >= channels


def _mirrored(
    binding: Binding, x: Array, w: Array, out: Array, bias: Array | None, axes: Sequence[WindowAxis]
) -> tuple[Call, ...]:
    """The convolution of ``x``, zeros inserted for strides, with mirrored weights."""
    sizes = [(axis.out - 1) * axis.stride + 1 for axis in axes]
    mirrored = [
        replace(axis, size=size, stride=1, begin=axis.extent - 1 - axis.begin, out=axis.size)
        for axis, size in zip(axes, sizes, strict=True)
    ]
    weights = np.flip(w.swapaxes(1, 2), tuple(range(3, w.ndim)))
    if bias is not None:
        bias = bias.reshape(*out.shape[1:3], 1, 1)
    if all(axis.stride == 1 for axis in axes):
        return convolution_calls(binding, list(planes(x, weights, out, mirrored, bias)))
    images = max(1, min(len(x), _WIDE_BYTES // (prod(x.shape[1:3]) * prod(sizes) * x.itemsize)))
    wide = binding.scratch.take((images, *x.shape[1:3], *sizes), x.dtype)
    given: tuple[Any, ...] = (..., *(slice(None, None, axis.stride) for axis in axes))
    calls: list[Call] = [partial(wide.fill, 0)]
    mark = binding.scratch.mark()
    for start in range(0, len(x), images):
        binding.scratch.rewind(mark)
        some, results = x[start : start + images], out[start : start + images]
        part = wide[: len(some)]
        calls.append(partial(np.copyto, part[given], some))
        parts = list(planes(part, weights, results, mirrored, bias))
        calls += convolution_calls(binding, parts)
    return tuple(calls)


@dataclass(frozen=True, slots=True)
class _Part:
    """Some images, groups or output channels.

    Attributes:
        x: [N, groups, channels, *sizes].
        w: [groups, channels, outputs, taps].
        out: [N, groups, outputs, *sizes].
        bias: [groups, outputs, 1...].
    """

    x: Array
    w: Array
    out: Array
    bias: Array | None

    def cut(self) -> list[_Part]:
        """Parts of similar size."""
        images, groups, outputs = self.out.shape[:3]
        multiplications = self.x.size * prod(self.w.shape[2:])
        count = share_count(multiplications=multiplications, elements=2 * self.out.size)
        for length, part in (
            (images, self._images),
            (groups, self._groups),
            (outputs, self._outputs),
        ):
            if length >= count > 1:
                return [part(piece) for piece in even_slices(length, count)]
        return [self]

    def _images(self, part: slice) -> _Part:
        return replace(self, x=self.x[part], out=self.out[part])

    def _groups(self, part: slice) -> _Part:
        bias = None if self.bias is None else self.bias[part]
        return _Part(self.x[:, part], self.w[part], self.out[:, part], bias)

    def _outputs(self, part: slice) -> _Part:
        bias = None if self.bias is None else self.bias[:, part]
        return replace(self, w=self.w[:, :, part], out=self.out[:, :, part], bias=bias)


def _part_calls(binding: Binding, part: _Part, axes: Sequence[WindowAxis]) -> Iterator[Call]:
    covers = all(_covers(axis) for axis in axes)
    groups, channels, outputs, taps = part.w.shape
    matrix = part.w.reshape(groups, channels, outputs * taps).swapaxes(1, 2)
    for image, result in zip(part.x, part.out, strict=True):
        if not covers:
            yield partial(np.copyto, result, 0 if part.bias is None else part.bias)
        for block, target, rows in _row_blocks(image, result, matrix.shape[1], axes):
            yield from _products(binding, matrix, block, target, rows, add=not covers)
            if covers:
                yield from epilogue_calls(binding, target, (part.bias,))
        if not covers:
            yield from epilogue_calls(binding, result, ())


def _covers(axis: WindowAxis) -> bool:
    """True if every element of the axis lies in exactly one window."""
    windows = axis.out * axis.stride
    return axis.kernel == axis.stride and axis.dilation == 1 and axis.begin + axis.size <= windows


def _row_blocks(
    x: Array, out: Array, products: int, axes: Sequence[WindowAxis]
) -> Iterator[tuple[Array, Array, tuple[WindowAxis, ...]]]:
    """Rows of the input along the first axis, the output rows that they reach, and the axes."""
    first, *others = axes
    per_row = x.itemsize * len(x) * products * prod(x.shape[3:])
    count = max(1, min(first.out, _PRODUCT_BYTES // max(per_row, 1)))
    for start in range(0, first.out, count):
        stop = min(start + count, first.out)
        low = start * first.stride - first.begin
        high = (stop - 1) * first.stride + first.extent - first.begin
        low, high = (min(max(end, 0), first.size) for end in (low, high))
        begin = first.begin + low - start * first.stride
        rows = replace(first, size=high - low, begin=begin, out=stop - start)
        yield x[:, :, start:stop], out[:, :, low:high], (rows, *others)


def _products(
    binding: Binding, matrix: Array, x: Array, out: Array, axes: Sequence[WindowAxis], *, add: bool
) -> Iterator[Call]:
    """Write (or add) the taps that matrix @ x gives into out [groups, outputs, *sizes]."""
    groups, channels, *sizes = x.shape
    mark = binding.scratch.mark()
    columns = merged_view(x, (groups, channels, prod(sizes))) if x.size else None
    if columns is None:
        columns = binding.scratch.take((groups, channels, prod(sizes)), x.dtype)
        yield partial(np.copyto, columns.reshape(x.shape), x)
    taps = binding.scratch.take((groups, matrix.shape[1], columns.shape[2]), out.dtype)
    yield partial(np.matmul, matrix, columns, out=taps)
    kernel = tuple(axis.kernel for axis in axes)
    yield from _spread(taps.reshape(*out.shape[:2], *kernel, *sizes), out, axes, add=add)
    binding.scratch.rewind(mark)


def _spread(taps: Array, out: Array, axes: Sequence[WindowAxis], *, add: bool) -> Iterator[Call]:
    """Write (or add) taps [..., *kernel, *windows] into out [..., *sizes]."""
    for tap, windows, elements in tap_places(axes):
        source, target = taps[(*tap, *windows[1:])], out[elements]
        if target.size:
            if add:
                yield partial(np.add, target, source, out=target)
            else:
                yield partial(np.copyto, target, source)


def _col2im(binding: Binding) -> Calls:
    """[N, C * taps, blocks] to [N, C, *image_shape] (ONNX Col2Im-18); overlapping blocks add up."""
    x, out = binding.input(0), binding.output()
    if out.size == 0:
        return ()
    image, block = binding.integers("image_shape"), binding.integers("block_shape")
    axes = window_axes(binding, image, block, (0,) * len(image))
    counts = [(axis.begin + axis.size + axis.end - axis.extent) // axis.stride + 1 for axis in axes]
    axes = tuple(replace(axis, out=count) for axis, count in zip(axes, counts, strict=True))
    taps = x.reshape(*out.shape[:2], *block, *counts)
    zero = partial(out.fill, 0)
    return (zero, *_spread(taps, out, axes, add=True))


KERNELS: Final[dict[str, Kernel]] = {
    "Col2Im": _col2im,
    "ConvTranspose": in_float32(_conv_transpose),
}
