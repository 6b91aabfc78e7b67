"""Convolution: which algorithm computes it.

The last two spatial axes are called rows and columns.  A convolution over one axis has one row; one
over more axes is a two-dimensional convolution for each position along the others, summed over
their taps.  `conv_dense` and `conv_depthwise` do the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.binding import Binding, Calls, Kernel
from popc_runtime.kernels.conv_dense import dense_calls
from popc_runtime.kernels.conv_depthwise import depthwise_calls, is_depthwise
from popc_runtime.kernels.conv_plane import Plane, is_flat
from popc_runtime.kernels.epilogue import in_float32
from popc_runtime.kernels.windows import Axis, window_axes

__all__ = ["KERNELS", "grouped"]


def _conv(binding: Binding) -> Calls:
    """X [N, C, *sizes], W [M, C / group, *kernel], [B [M]], [residual]."""
    if binding.output().size == 0:
        return ()
    planes = list(_planes(binding))
    if is_depthwise(planes[0]):
        return depthwise_calls(binding, planes[0])
    return dense_calls(binding, planes)


def _planes(binding: Binding) -> Iterator[Plane]:
    """A plane for each position along the axes before the last two; taps in the padding are cut."""
    group = binding.integer("group", 1)
    x, out = grouped(binding.input(0), 1, group), grouped(binding.output(), 1, group)
    w = grouped(binding.input(1), 0, group)
    bias, residual = binding.optional(2), binding.optional(3)
    bias = None if bias is None else bias.reshape(*w.shape[:2], 1, 1)
    residual = None if residual is None else grouped(residual, 1, group)
    axes = window_axes(binding, x.shape[3:], w.shape[3:], out.shape[3:])
    if len(axes) == 1:
        x, w, out = x[:, :, :, None], w[:, :, :, None], out[:, :, :, None]
        residual = None if residual is None else residual[:, :, :, None]
        axes = (Axis(1, 1, out=1), *axes)
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


def grouped(array: Array, axis: int, group: int) -> Array:
    """``array`` with ``axis`` split into (group, members of a group), without a copy."""
    members = array.shape[axis] // group
    return array.reshape(*array.shape[:axis], group, members, *array.shape[axis + 1 :])


def _taps_inside(axis: Axis, position: int) -> tuple[slice, slice]:
    """The taps of the window at ``position`` that lie inside the input, and where they do."""
    first = position * axis.stride - axis.begin
    taps = [k for k in range(axis.kernel) if 0 <= first + k * axis.dilation < axis.size]
    if not taps:
        return slice(0, 0), slice(0, 0)
    low, high = first + taps[0] * axis.dilation, first + taps[-1] * axis.dilation
    return slice(taps[0], taps[-1] + 1), slice(low, high + 1, axis.dilation)


KERNELS: Final[dict[str, Kernel]] = {"Conv": in_float32(_conv)}
