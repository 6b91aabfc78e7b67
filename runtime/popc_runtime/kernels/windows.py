"""Windows that slide over the spatial axes of a tensor: the geometry of convolution and pooling.

Kernels that visit windows tap by tap never need a padded copy: for each tap, `Axis.span` tells
which windows read a real element, and `tap_places` gives the slices for all axes.  Kernels that
want whole windows copy into a padded buffer (`pad_calls`) and look at it through `windows`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.binding import Binding, Call

__all__ = ["Axis", "Place", "Span", "pad_calls", "padded_shape", "tap_places", "window_axes", "windows"]


@dataclass(frozen=True, slots=True)
class Span:
    """The outputs whose tap lies inside the input, and where those taps lie."""

    first: int
    stop: int
    source: int
    stride: int

    @property
    def outputs(self) -> slice:
        """Output positions."""
        return slice(self.first, self.stop)

    @property
    def inputs(self) -> slice:
        """Input positions, one for each output position."""
        last = self.source + (self.stop - self.first - 1) * self.stride
        return slice(self.source, max(last, self.source - 1) + 1, self.stride)

    @property
    def size(self) -> int:
        """Number of positions."""
        return self.stop - self.first


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial axis.

    Attributes:
        size: Input elements.
        kernel, stride, dilation: Of the window.
        begin, end: Padding; ``begin`` may be negative (the input is cropped).
        out: Windows.  The last ones may reach beyond the end padding (``ceil_mode``).
    """

    size: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    begin: int = 0
    end: int = 0
    out: int = 0

    @property
    def extent(self) -> int:
        """Elements from the first to the last tap of a window."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def padded(self) -> int:
        """Elements of a padded axis that holds the input and every window."""
        windows = (self.out - 1) * self.stride + self.extent
        return max(windows, self.begin + self.size)

    @property
    def is_plain(self) -> bool:
        """Whether output i reads input i, and nothing else."""
        return self.kernel == 1 and self.stride == 1 and self.begin == 0 and self.out == self.size

    def span(self, tap: int) -> Span:
        """Where window element ``tap`` lies inside the input."""
        offset = tap * self.dilation - self.begin
        first = max(0, -(offset // self.stride))
        stop = min(self.out, (self.size - 1 - offset) // self.stride + 1)
        stop = max(stop, first)
        return Span(first, stop, first * self.stride + offset, self.stride)

    def counts(self, *, include_padding: bool) -> Array:
        """How many elements each window averages over: inside the input, or inside the padding."""
        starts = np.arange(self.out) * self.stride - self.begin
        low, high = (-self.begin, self.size + self.end) if include_padding else (0, self.size)
        taps = starts[:, None] + np.arange(self.kernel) * self.dilation
        counts: Array = ((taps >= low) & (taps < high)).sum(axis=1)
        return counts


def window_axes(
    binding: Binding, sizes: Sequence[int], kernel: Sequence[int], outs: Sequence[int]
) -> tuple[Axis, ...]:
    """The axes of a window op with attributes ``strides``, ``dilations`` and ``pads``."""
    rank = len(sizes)
    strides = binding.integers("strides", (1,) * rank)
    dilations = binding.integers("dilations", (1,) * rank)
    pads = binding.integers("pads", (0,) * (2 * rank))
    fields = zip(sizes, kernel, strides, dilations, pads[:rank], pads[rank:], outs, strict=True)
    return tuple(Axis(*field) for field in fields)


Place: TypeAlias = "tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]"


def tap_places(axes: Sequence[Axis]) -> Iterator[Place]:
    """Each tap in row-major order, the windows whose tap is inside the input, and where it is."""
    for tap in product(*(range(axis.kernel) for axis in axes)):
        spans = [axis.span(k) for axis, k in zip(axes, tap, strict=True)]
        yield tap, tuple(span.outputs for span in spans), tuple(span.inputs for span in spans)


def padded_shape(shape: Sequence[int], axes: Sequence[Axis]) -> tuple[int, ...]:
    """``shape`` with the last axes padded so that every window lies inside."""
    return (*shape[: len(shape) - len(axes)], *(axis.padded for axis in axes))


def pad_calls(x: Array, padded: Array, axes: Sequence[Axis], value: float) -> list[Call]:
    """Calls that copy ``x`` into ``padded`` (see `padded_shape`; any dtype) and fill its border."""
    lead = (slice(None),) * (x.ndim - len(axes))
    calls: list[Call] = []
    inner: list[slice] = []
    for axis in axes:
        begin = max(axis.begin, 0)
        stop = min(begin + axis.size + min(axis.begin, 0), axis.padded)
        for border in (slice(0, begin), slice(stop, axis.padded)):
            target = padded[(*lead, *inner, border)]
            if target.size:
                calls.append(partial(np.copyto, target, np.asarray(value, padded.dtype)))
        inner.append(slice(begin, stop))
    cropped = tuple(slice(max(-axis.begin, 0), axis.size) for axis in axes)
    copy: Any = partial(np.copyto, padded[(*lead, *inner)], x[(*lead, *cropped)])
    return [copy, *calls]


def windows(padded: Array, axes: Sequence[Axis]) -> Array:
    """A read-only view [..., *outs, *kernel] of a padded array [..., *sizes]."""
    rank = len(axes)
    lead = padded.ndim - rank
    strides = padded.strides[lead:]
    steps = [axis.stride * step for axis, step in zip(axes, strides, strict=True)]
    taps = [axis.dilation * step for axis, step in zip(axes, strides, strict=True)]
    shape = (*padded.shape[:lead], *(a.out for a in axes), *(a.kernel for a in axes))
    return as_strided(padded, shape, (*padded.strides[:lead], *steps, *taps), writeable=False)
