"""The number of windows: the shape arithmetic that convolution and pooling share."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from popc.ir import Shape
from popc.ir.attributes import integers
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes
from popc_runtime.format.limits import MAX_TAPS
from popc_runtime.ground.frozen import frozen

__all__ = ["WindowAttributes", "window_attributes"]

_MOST: Final = (1 << 31) - 1  # native kernels count windows in 32 bits


@frozen
class WindowAttributes:
    """Strides, dilations and padding, one entry per spatial axis."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    def extents(self, kernel: Sequence[int]) -> tuple[int, ...]:
        """Elements from the first to the last tap of a window, per axis.

        Raises:
            ModelError: there are more taps than any kernel takes.
        """
        if prod(kernel) > MAX_TAPS:
            raise ModelError(f"a window has {prod(kernel):,} taps, and may have {MAX_TAPS:,}")
        pairs = zip(kernel, self.dilations, strict=True)
        return tuple((taps - 1) * dilation + 1 for taps, dilation in pairs)

    def outputs(self, sizes: Shape, kernel: Sequence[int], *, ceil_mode: bool = False) -> Shape:
        """The number of windows per axis.

        With ``ceil_mode`` a last window that begins inside the input or the padding before it
        counts although it reaches beyond the padding at the end (ONNX MaxPool-22).

        Raises:
            ModelError: a window is larger than the padded input.
        """
        return tuple(
            self._output(axis, size, extent, ceil_mode=ceil_mode)
            for axis, (size, extent) in enumerate(zip(sizes, self.extents(kernel), strict=True))
        )

    def _output(self, axis: int, size: int, extent: int, *, ceil_mode: bool) -> int:
        begin, stride = self.begins[axis], self.strides[axis]
        room = begin + size + self.ends[axis] - extent
        if room < 0 and not (ceil_mode and room > -stride):
            raise ModelError(
                f"spatial axis {axis} has {size} elements and {begin} + {self.ends[axis]} of "
                f"padding, fewer than the {extent} that the kernel spans"
            )
        count = (-(-room // stride) if ceil_mode else room // stride) + 1
        if ceil_mode and (count - 1) * stride >= size + begin:
            count -= 1
        return count

    def transposed(
        self, sizes: Shape, kernel: Sequence[int], output_padding: Sequence[int]
    ) -> Shape:
        """The spatial shape of a transposed convolution (ONNX ConvTranspose-22)."""
        fields = zip(
            sizes, self.strides, output_padding, self.extents(kernel), self.begins, self.ends,
            strict=True,
        )  # fmt: skip
        shape = tuple(
            stride * (size - 1) + extra + extent - begin - end
            for size, stride, extra, extent, begin, end in fields
        )
        if min(shape, default=0) < 0:
            raise ModelError(f"the output shape {list(shape)} is negative")
        return shape


def window_attributes(attributes: Attributes, rank: int) -> WindowAttributes:
    """Attributes ``strides``, ``dilations`` and ``pads``, checked, for ``rank`` spatial axes."""
    strides = integers(attributes, "strides", (1,) * rank)
    dilations = integers(attributes, "dilations", (1,) * rank)
    pads = integers(attributes, "pads", (0,) * (2 * rank))
    lengths = {"strides": (strides, rank), "dilations": (dilations, rank), "pads": (pads, 2 * rank)}
    for name, (values, length) in lengths.items():
        if len(values) != length:
            raise ModelError(
                f"{name} has {len(values)} entries, expected {length} for {rank} spatial axes"
            )
    if min((*strides, *dilations), default=1) < 1:
        raise ModelError("strides and dilations must be positive")
    if max((*strides, *dilations, *map(abs, pads)), default=0) > _MOST:
        raise ModelError(f"strides, dilations and pads must be at most {_MOST:,}")
    return WindowAttributes(strides, dilations, pads[:rank], pads[rank:])
