"""Windows that slide over the spatial axes of a tensor: the geometry of convolution and pooling.

Padding is never copied.  Kernels visit windows tap by tap: for each tap, `WindowAxis.span` tells
which windows read an element of the input rather than padding, and `tap_places` gives the slices
for all axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product
from math import prod

from popc_runtime.format.limits import MAX_TAPS
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Any, TypeAlias
from popc_runtime.kernels.core.operands import Operands

__all__ = ["Place", "Span", "WindowAxis", "tap_places", "window_axes"]


@frozen
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


@frozen
class WindowAxis:
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
    def is_plain(self) -> bool:
        """True if output i reads input i, and nothing else."""
        return self.kernel == 1 and self.stride == 1 and self.begin == 0 and self.out == self.size

    @property
    def used(self) -> WindowAxis:
        """The same windows without taps at their ends that lie in the padding in all of them.

        Each window has the same elements of the input; what it has of the padding is lost.
        """
        reach = self.begin - (self.out - 1) * self.stride  # of the last window before the input
        first = max(0, -(-reach // self.dilation))
        stop = min(self.kernel, -(-(self.size + self.begin) // self.dilation))
        if first >= stop:  # no window has an element
            return self
        begin = self.begin - first * self.dilation
        return WindowAxis(
            self.size, stop - first, self.stride, self.dilation, begin, self.end, self.out
        )

    def span(self, tap: int) -> Span:
        """The span of windows whose element ``tap`` lies inside the input."""
        offset = tap * self.dilation - self.begin
        first = max(0, -(offset // self.stride))
        stop = min(self.out, (self.size - 1 - offset) // self.stride + 1)
        stop = max(stop, first)
        return Span(first, stop, first * self.stride + offset, self.stride)

    def counts(self, *, include_padding: bool) -> list[tuple[int, int]]:
        """The sizes of windows: elements inside the input, or inside the padding.

        Pairs of a size, and of how many windows in succession have it; not more of them than two
        for each tap.
        """
        low, high = (-self.begin, self.size + self.end) if include_padding else (0, self.size)
        turns = [0, *self._turns(low, high), self.out]
        return [
            (self._count(window, low, high), after - window)
            for window, after in pairwise(turns)
            if after > window
        ]

    def _turns(self, low: int, high: int) -> Iterable[int]:
        """The windows at which another element comes between ``low`` and ``high``, or leaves."""
        if self.out <= 2 * self.kernel:
            return range(1, self.out)
        taps = (end - tap * self.dilation for end in (low, high) for tap in range(self.kernel))
        turns = {-((-self.begin - first) // self.stride) for first in taps}
        return sorted(turn for turn in turns if 0 < turn < self.out)

    def _count(self, window: int, low: int, high: int) -> int:
        start = window * self.stride - self.begin
        first, stop = (-((start - end) // self.dilation) for end in (low, high))
        return max(0, min(self.kernel, stop) - max(0, first))


def window_axes(
    binding: Operands[Any], sizes: Sequence[int], kernel: Sequence[int], outs: Sequence[int]
) -> tuple[WindowAxis, ...]:
    """The axes of a window op with attributes ``strides``, ``dilations`` and ``pads``.

    Raises:
        ValueError: there are more taps than any kernel takes.
    """
    if prod(kernel) > MAX_TAPS:
        raise ValueError(f"a window has {prod(kernel):,} taps, and may have {MAX_TAPS:,}")
    rank = len(sizes)
    strides = binding.integers("strides", (1,) * rank)
    dilations = binding.integers("dilations", (1,) * rank)
    pads = binding.integers("pads", (0,) * (2 * rank))
    fields = zip(sizes, kernel, strides, dilations, pads[:rank], pads[rank:], outs, strict=True)
    return tuple(WindowAxis(*field) for field in fields)


Index: TypeAlias = tuple[Any, ...]

# A tap, the windows for which it lies inside the input, and the elements that it then reads: each
# an index into an array whose last dimensions are the axes.
Place: TypeAlias = "tuple[Index, Index, Index]"


def tap_places(axes: Sequence[WindowAxis]) -> Iterator[Place]:
    """Each tap in row-major order, the windows whose tap is inside the input, and where it is."""
    for tap in product(*(range(axis.kernel) for axis in axes)):
        spans = [axis.span(k) for axis, k in zip(axes, tap, strict=True)]
        windows, elements = [span.outputs for span in spans], [span.inputs for span in spans]
        yield (..., *tap), (..., *windows), (..., *elements)
