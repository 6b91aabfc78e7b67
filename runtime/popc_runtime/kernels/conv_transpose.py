"""Transposed convolution and Col2Im: windows that are written instead of read.

A transposed convolution is one matrix product, whose rows are the taps, and then a sum of each tap
into the elements that its windows cover.  Blocks of input rows keep the product in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.conv import grouped
from popc_runtime.kernels.epilogue import epilogue_calls, in_float32
from popc_runtime.kernels.windows import Axis, tap_places, window_axes

__all__ = ["KERNELS"]

_PRODUCT_BYTES: Final = 1 << 20  # of the matrix product in one block


def _conv_transpose(binding: Binding) -> Calls:
    """X [N, C, *sizes], W [C, M / group, *kernel], [B [M]]; ``pads`` crop the output."""
    if binding.output().size == 0:
        return ()
    group = binding.integer("group", 1)
    x, out = grouped(binding.input(0), 1, group), grouped(binding.output(), 1, group)
    w = grouped(binding.input(1), 0, group)
    bias = binding.optional(2)
    if bias is not None:
        bias = bias.reshape(*out.shape[1:3], *(1 for _ in out.shape[3:]))
    axes = window_axes(binding, out.shape[3:], w.shape[3:], x.shape[3:])
    matrix = w.reshape(*w.shape[:2], prod(w.shape[2:])).swapaxes(1, 2)
    covers = all(_covers(axis) for axis in axes)
    calls: list[Call] = []
    for image, result in zip(x, out, strict=True):
        if not covers:
            calls.append(partial(np.copyto, result, 0 if bias is None else bias))
        for block, part, rows in _row_blocks(image, result, matrix.shape[1], axes):
            calls += _products(binding, matrix, block, part, rows, add=not covers)
            if covers:
                calls += epilogue_calls(binding, part, (bias,))
        if not covers:
            calls += epilogue_calls(binding, result, ())
    return tuple(calls)


def _covers(axis: Axis) -> bool:
    """Whether every element of the axis lies in exactly one window."""
    windows = axis.out * axis.stride
    return axis.kernel == axis.stride and axis.dilation == 1 and axis.begin + axis.size <= windows


def _row_blocks(
    x: Array, out: Array, products: int, axes: Sequence[Axis]
) -> Iterator[tuple[Array, Array, tuple[Axis, ...]]]:
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
    binding: Binding, matrix: Array, x: Array, out: Array, axes: Sequence[Axis], *, add: bool
) -> Iterator[Call]:
    """Write (or add) the taps that matrix @ x gives into out [groups, outputs, *sizes]."""
    groups, channels, *sizes = x.shape
    mark = binding.scratch.mark()
    columns = x.reshape(groups, channels, prod(sizes))
    taps = binding.scratch.take((groups, matrix.shape[1], columns.shape[2]), out.dtype)
    yield partial(np.matmul, matrix, columns, out=taps)
    kernel = tuple(axis.kernel for axis in axes)
    yield from _spread(taps.reshape(*out.shape[:2], *kernel, *sizes), out, axes, add=add)
    binding.scratch.rewind(mark)


def _spread(taps: Array, out: Array, axes: Sequence[Axis], *, add: bool) -> Iterator[Call]:
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
