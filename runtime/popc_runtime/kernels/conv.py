"""Convolution as matrix products over shifted copies of the input.

The last two spatial axes are called rows and columns; what other axes there are is summed over tap
by tap (`_planes`), and a convolution over one axis has one row.

Dense and grouped convolutions expand the input by the taps *along a row* only: block S holds, for
each channel and each tap j, the input shifted by j.  A tap i across rows then is a window of S that
BLAS can read in place, because the rows of S lie one behind the other:

    out[y] = sum over i of  W[:, :, i, :] @ S[..., i + y]

so S is kernel-height times smaller than the matrix of all windows (im2col).  Where the products
would be too flat to be worth their additions, S holds the taps across rows as well.  Blocks of
output rows are sized so that S stays in the cache.  A convolution whose windows are columns of
single elements reads the input in place.  Depthwise convolutions are in `conv_depthwise`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels import col2im, conv_transpose, deform_conv
from popc_runtime.kernels.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.conv_depthwise import depthwise_calls, is_depthwise
from popc_runtime.kernels.epilogue import epilogue_calls, has_epilogue, in_float32
from popc_runtime.kernels.expansion import Expansion
from popc_runtime.kernels.matmul import blas_ready, merged_view
from popc_runtime.kernels.windows import Axis, window_axes

__all__ = ["KERNELS"]

_EXPANDED_BYTES: Final = 2 << 20  # of S in one block
_RESULT_BYTES: Final = 1 << 20  # of the output in one block, if an epilogue follows
_FEWEST_COLUMNS: Final = 512  # of a product: BLAS is slow on narrow ones
# Taps across rows are expanded too if a product has fewer operand rows than this many per output
# row: the copies cost less than adding the products up.
_FLAT: Final = 1.4


@dataclass(frozen=True, slots=True)
class _Plane:
    """A convolution over rows and columns.

    Attributes:
        x: [N, groups, channels, (taps of other axes)..., H, W]; summed over all but the first two.
        w: [groups, outputs, channels, (taps)..., kernel height, kernel width].
        out: [N, groups, outputs, H', W'].  Its rows lie one behind the other.
        residual: Like ``out``, or ``None``.
        rows, columns: The axes.
    """

    x: Array
    w: Array
    out: Array
    residual: Array | None
    rows: Axis
    columns: Axis


def _conv(binding: Binding) -> Calls:
    """X [N, C, *sizes], W [M, C / group, *kernel], [B [M]], [residual]."""
    if binding.output().size == 0:
        return ()
    group = binding.integer("group", 1)
    x, out = (_grouped(array, 1, group) for array in (binding.input(0), binding.output()))
    w = _grouped(binding.input(1), 0, group)
    residual = binding.optional(3)
    if residual is not None:
        residual = _grouped(residual, 1, group)
    bias = binding.optional(2)
    bias5 = None if bias is None else bias.reshape(group, -1, 1, 1)
    axes = window_axes(binding, x.shape[3:], w.shape[3:], out.shape[3:])
    if x.ndim == 4:
        x, w, out = x[:, :, :, None], w[:, :, :, None], out[:, :, :, None]
        residual = None if residual is None else residual[:, :, :, None]
        axes = (Axis(1, 1, out=1), *axes)
    if is_depthwise(x, w):
        return depthwise_calls(binding, x, w, out, (bias5, residual), axes)
    planes = list(_planes(x, w, out, residual, axes))
    weights = _Weights(binding)
    for plane in planes:
        weights.add(plane)
    calls = [call for plane in planes for call in _plane_calls(binding, plane, weights, bias5)]
    return (*weights.calls, *calls)


def _grouped(array: Array, axis: int, group: int) -> Array:
    """``axis`` split into (group, rest), without a copy."""
    return array.reshape(*array.shape[:axis], group, -1, *array.shape[axis + 1 :])
