"""Gradients of pooling: what windows read, they write.

As pooling itself, one axis after the other, in blocks of channels that stay in the cache.

The gradient of a maximum goes to the first element that equals it, in row-major order: with the
last axis pooled first, that is the first along an axis, axis after axis.  numpy selects by masks an
element at a time, but multiplies by them with vector instructions, so the gradient is multiplied by
what equals the maximum, and what is left over passes on to the next tap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, Scratch
from popc_runtime.kernels.core.copying import as_contiguous
from popc_runtime.kernels.parts.epilogue import in_float32
from popc_runtime.kernels.parts.windows import Span, WindowAxis, window_axes
from popc_runtime.kernels.pool import along, block_by_block, lowest, one_image, shares

__all__ = ["KERNELS"]


def _axes(binding: Binding) -> tuple[WindowAxis, ...]:
    dy, dx = binding.input(0), binding.output()
    kernel = binding.integers("kernel_shape")
    return window_axes(binding, dx.shape[2:], kernel, dy.shape[2:])


def _are_disjoint(axis: WindowAxis) -> bool:
    """True if no element is in two windows."""
    return axis.extent <= axis.stride or axis.out == 1


def _covers(axis: WindowAxis) -> bool:
    """True if each element is in one window at least."""
    spans = [axis.span(tap).inputs for tap in range(axis.kernel)]
    return len({place for span in spans for place in range(axis.size)[span]}) == axis.size


def _part(array: Array, number: int, window: slice) -> Array:
    """Some of dimension ``number``."""
    index: tuple[Any, ...] = (*(slice(None),) * number, window)
    part: Array = array[index]
    return part


# -- AveragePool -----------------------------------------------------------------------------------


def _average_pool_grad(binding: Binding) -> Calls:
    """dY [N, C, *windows] to dX [N, C, *sizes]; attribute ``sum`` leaves out the division."""
    dy, dx, axes = binding.input(0), binding.output(), _axes(binding)
    if dx.size == 0:
        return ()
    dy, dx = one_image(dy, dx)
    summed = bool(binding.integer("sum", 0))
    share = shares(binding, axes, dy.dtype)

    def block(image: int, channels: slice) -> Iterator[Call]:
        source, target = dy[image, channels], dx[image, channels]
        mark = binding.scratch.mark()
        if not summed:
            scaled = binding.scratch.take(source.shape, source.dtype)
            yield partial(np.multiply, source, share, out=scaled)
            source = scaled
        yield from _spread(binding.scratch, source, target, axes)
        binding.scratch.rewind(mark)

    return block_by_block(binding, dx, axes, block)


def _spread(scratch: Scratch, dy: Array, dx: Array, axes: Sequence[WindowAxis]) -> Iterator[Call]:
    """Add each element of dy [channels, *windows] to all elements of its window."""
    numbers = [number for number, axis in enumerate(axes, start=1) if not axis.is_plain]
    if not numbers:
        yield partial(np.copyto, dx, dy)
    for number in reversed(numbers):
        axis = axes[number - 1]
        shape = (*dy.shape[:number], axis.size, *dy.shape[number + 1 :])
        target = dx if number == numbers[0] else scratch.take(shape, dy.dtype)
        yield from _spread_along(dy, target, number, axis)
        dy = target


def _spread_along(dy: Array, dx: Array, number: int, axis: WindowAxis) -> Iterator[Call]:
    """The same along dimension ``number`` alone."""
    if axis.stride == 1:
        begin = axis.extent - 1 - axis.begin
        mirrored = replace(axis, size=axis.out, begin=begin, out=axis.size)
        yield from along(dy, dx, number, mirrored, np.add, 0)
        return
    disjoint = _are_disjoint(axis)
    if not (disjoint and _covers(axis)):
        yield partial(dx.fill, 0)
    for span in map(axis.span, range(axis.kernel)):
        source, target = _part(dy, number, span.outputs), _part(dx, number, span.inputs)
        if target.size:
            if disjoint:
                yield partial(np.copyto, target, source)
            else:
                yield partial(np.add, target, source, out=target)


# -- MaxPool ---------------------------------------------------------------------------------------


def _max_pool_grad(binding: Binding) -> Calls:
    """The gradient of the maxima, X and the maxima, to dX."""
    dx, axes = binding.output(), _axes(binding)
    if dx.size == 0:
        return ()
    if binding.input(0).size == 0:
        return partial(dx.fill, 0)
    operands, before = zip(*(as_contiguous(binding, index) for index in range(3)), strict=True)
    dy, x, y, dx = one_image(*operands, dx)
    least = lowest(x.dtype)

    def block(image: int, channels: slice) -> Iterator[Call]:
        at = (image, channels)
        mark = binding.scratch.mark()
        yield from _selected(binding.scratch, dy[at], x[at], y[at], dx[at], axes, least)
        binding.scratch.rewind(mark)

    copies = (call for calls in before for call in calls)
    return (*copies, *block_by_block(binding, x, axes, block))


def _selected(
    scratch: Scratch,
    dy: Array,
    x: Array,
    y: Array,
    dx: Array,
    axes: Sequence[WindowAxis],
    least: Any,
) -> Iterator[Call]:
    """For [channels, *sizes]: pool the axes but the first, last to first, then walk back."""
    numbers = [number for number, axis in enumerate(axes, start=1) if not axis.is_plain]
    if not numbers:
        yield partial(np.copyto, dx, dy)
        return
    pooled = [x]
    for number in reversed(numbers[1:]):
        axis = axes[number - 1]
        shape = (*x.shape[:number], axis.out, *x.shape[number + 1 :])
        x = scratch.take(shape, x.dtype)
        yield from along(pooled[-1], x, number, axis, np.maximum, least)
        pooled.append(x)
    results = [*pooled[1:], y]
    for number, x, result in zip(numbers, reversed(pooled), reversed(results), strict=True):
        target = dx if number == numbers[-1] else scratch.take(x.shape, x.dtype)
        yield from _selected_along(scratch, dy, x, result, target, number, axes[number - 1])
        dy = target


def _selected_along(
    scratch: Scratch, dy: Array, x: Array, y: Array, dx: Array, number: int, axis: WindowAxis
) -> Iterator[Call]:
    """Add each element of ``dy`` to the first element of its window that is its maximum ``y``."""
    mark = scratch.mark()
    memory = (*(scratch.take(dy.shape, dy.dtype) for _ in range(2)), scratch.take(dy.shape, "?"))
    scratch.rewind(mark)
    disjoint = _are_disjoint(axis)
    if not (disjoint and _covers(axis)):
        yield partial(dx.fill, 0)
    spans = [axis.span(tap) for tap in range(axis.kernel)]
    *firsts, last = (span for span in spans if span.size)
    if spans[0].size < axis.out:
        yield partial(np.copyto, memory[0], dy)
        dy = memory[0]
    contiguous = all(array.flags.c_contiguous for array in (dy, x, y, dx))
    in_line = contiguous and axis.size == axis.stride * axis.out
    views = _views_in_line if in_line else _views
    for span in firsts if last.size == axis.out else (*firsts, last):
        (given, rest, share, hit, maximum), (target, element) = views(
            (dy, *memory, y), (dx, x), number, span
        )
        share = target if disjoint else share
        yield partial(np.equal, element, maximum, out=hit)
        if in_line:
            yield from _without_outside(memory[2], number, span)
        yield partial(np.multiply, given, hit, out=share)
        yield partial(np.subtract, given, share, out=rest)
        if not disjoint:
            yield partial(np.add, target, share, out=target)
        dy = memory[0]
    if last.size == axis.out:  # what is left over must be its
        target = _part(dx, number, last.inputs)
        if disjoint:
            yield partial(np.copyto, target, dy)
        else:
            yield partial(np.add, target, dy, out=target)


_Arrays: TypeAlias = tuple[Array, ...]


def _views(windows: _Arrays, elements: _Arrays, number: int, span: Span) -> tuple[_Arrays, _Arrays]:
    """Arrays of windows, and of elements, where a tap is inside: ``span``."""
    return (
        tuple(_part(array, number, span.outputs) for array in windows),
        tuple(_part(array, number, span.inputs) for array in elements),
    )


def _views_in_line(
    windows: _Arrays, elements: _Arrays, number: int, span: Span
) -> tuple[_Arrays, _Arrays]:
    """The same, but all along the line that each array is in memory, which is faster.

    Where the tap of a window is outside, the element is one of a row before or behind.
    """
    inner = prod(windows[0].shape[number + 1 :])
    step = span.stride * inner
    offset = span.source * inner - span.first * step
    count = windows[0].size // inner
    first = max(0, -(offset // step))
    stop = min(count, (elements[0].size - inner - offset) // step + 1)
    start = first * step + offset
    shape, strides = (stop - first, inner), (step * windows[0].itemsize, windows[0].itemsize)
    return (
        tuple(array.reshape(count, inner)[first:stop] for array in windows),
        tuple(
            as_strided(array.reshape(-1)[start:], shape, strides, subok=True) for array in elements
        ),
    )


def _without_outside(hits: Array, number: int, span: Span) -> Iterator[Call]:
    """Clear ``hits`` of windows whose tap is outside."""
    for window in (slice(0, span.first), slice(span.stop, hits.shape[number])):
        outside = _part(hits, number, window)
        if outside.size:
            yield partial(outside.fill, 0)


KERNELS: Final[dict[str, Kernel]] = {
    "AveragePoolGrad": in_float32(_average_pool_grad),
    "MaxPoolGrad": in_float32(_max_pool_grad),
}
