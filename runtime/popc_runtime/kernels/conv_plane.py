"""A convolution over rows and columns, and parts of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.windows import Axis

__all__ = ["Plane", "is_flat", "narrowed"]

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
        bias: [groups, outputs, 1, 1], to be added to ``out``.
        residual: Like ``out``, to be added to it.
        rows, columns: The axes.
        folded: Whether one product sums over the taps across rows (see `conv_dense`).
        key: Which taps along other axes ``w`` is cut to.
    """

    x: Array
    w: Array
    out: Array
    bias: Array | None
    residual: Array | None
    rows: Axis
    columns: Axis
    folded: bool
    key: tuple[tuple[int, int], ...] = ()

    @property
    def summed(self) -> int:
        """Channels and taps along other axes."""
        return prod(self.w.shape[2:-2])

    def of_images(self, part: slice) -> Plane:
        """For some of the batch."""
        residual = None if self.residual is None else self.residual[part]
        return replace(self, x=self.x[part], out=self.out[part], residual=residual)

    def of_groups(self, part: slice) -> Plane:
        """For some of the groups."""
        bias = None if self.bias is None else self.bias[part]
        residual = None if self.residual is None else self.residual[:, part]
        x, w, out = self.x[:, part], self.w[part], self.out[:, part]
        return replace(self, x=x, w=w, out=out, bias=bias, residual=residual)

    def of_outputs(self, part: slice) -> Plane:
        """For some output channels of each group."""
        bias = None if self.bias is None else self.bias[:, part]
        residual = None if self.residual is None else self.residual[:, :, part]
        w, out = self.w[:, part], self.out[:, :, part]
        return replace(self, w=w, out=out, bias=bias, residual=residual)

    def of_rows(self, part: slice) -> Plane:
        """For some rows of the output."""
        residual = None if self.residual is None else self.residual[..., part, :]
        begin = self.rows.begin - part.start * self.rows.stride
        rows = replace(self.rows, begin=begin, out=part.stop - part.start)
        return replace(self, out=self.out[..., part, :], residual=residual, rows=rows)


def is_flat(w: Array) -> bool:
    """Whether the weights of a plane are few for their outputs, so that it should be folded."""
    outputs, summed = int(w.shape[1]), prod(w.shape[2:-2]) * int(w.shape[-1])
    return w.shape[-2] == 1 or summed < _FLAT * outputs


def narrowed(plane: Plane, width: int) -> Iterator[Plane]:
    """A plane of one row that is much longer than ``width`` as several of that length."""
    axis = plane.columns
    if plane.rows.out > 1 or axis.out <= 2 * width:
        yield plane
        return
    for start in range(0, axis.out, width):
        stop = min(start + width, axis.out)
        low = start * axis.stride - axis.begin
        high = (stop - 1) * axis.stride + axis.extent - axis.begin
        first, last = (min(max(end, 0), axis.size) for end in (low, high))
        columns = replace(axis, size=last - first, begin=first - low, out=stop - start)
        residual = None if plane.residual is None else plane.residual[..., start:stop]
        x, out = plane.x[..., first:last], plane.out[..., start:stop]
        yield replace(plane, x=x, out=out, residual=residual, columns=columns)
