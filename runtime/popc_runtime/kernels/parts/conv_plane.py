"""A convolution over rows and columns, and parts of it.

A convolution over one axis has one row; one over more axes is a convolution over rows and columns
for each position along the others, summed over their taps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any, Final

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.parts.windows import WindowAxis

__all__ = ["Plane", "grouped", "is_flat", "narrowed", "planes"]

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
    rows: WindowAxis
    columns: WindowAxis
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
    """True if the weights of a plane are few for their outputs, so that it should be folded."""
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


def grouped(array: Array, axis: int, group: int) -> Array:
    """``array`` with ``axis`` split into (group, members of a group), without a copy."""
    members = array.shape[axis] // group
    return array.reshape(*array.shape[:axis], group, members, *array.shape[axis + 1 :])


def planes(
    x: Array,
    w: Array,
    out: Array,
    axes: Sequence[WindowAxis],
    bias: Array | None = None,
    residual: Array | None = None,
) -> Iterator[Plane]:
    """A plane for each position along the axes before the last two; taps in the padding are cut.

    Operands are grouped: x [N, groups, channels, *sizes], w [groups, outputs, channels, *kernel],
    out and residual [N, groups, outputs, *windows], bias [groups, outputs, 1, 1].
    """
    if len(axes) == 1:
        x, w, out = x[:, :, :, None], w[:, :, :, None], out[:, :, :, None]
        residual = None if residual is None else residual[:, :, :, None]
        axes = (WindowAxis(1, 1, out=1), *axes)
    depth, (rows, columns) = axes[:-2], axes[-2:]
    every = (slice(None),) * 3
    for position in product(*(range(axis.out) for axis in depth)):
        taps = [_taps_inside(axis, k) for axis, k in zip(depth, position, strict=True)]
        at: tuple[Any, ...] = (*every, *position)
        kept: tuple[Any, ...] = (*every, *(part for part, _ in taps))
        read: tuple[Any, ...] = (*every, *(part for _, part in taps))
        yield Plane(
            x=x[read],
            w=w[kept],
            out=out[at],
            bias=bias,
            residual=None if residual is None else residual[at],
            rows=rows,
            columns=columns,
            folded=is_flat(w[kept]),
            key=tuple((part.start, part.stop) for part, _ in taps),
        )


def _taps_inside(axis: WindowAxis, position: int) -> tuple[slice, slice]:
    """The taps of the window at ``position`` that lie inside the input, and where they do."""
    first = position * axis.stride - axis.begin
    taps = [k for k in range(axis.kernel) if 0 <= first + k * axis.dilation < axis.size]
    if not taps:
        return slice(0, 0), slice(0, 0)
    low, high = first + taps[0] * axis.dilation, first + taps[-1] * axis.dilation
    return slice(taps[0], taps[-1] + 1), slice(low, high + 1, axis.dilation)
