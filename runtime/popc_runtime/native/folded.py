"""Convolutions as products of all pixels with all taps, which are then added up.

So are transposed ones made by nature.  A convolution that moves by one element is a transposed one
with mirrored weights.
"""

from __future__ import annotations

from collections.abc import Sequence

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.kernels.parts.windows import WindowAxis
from popc_runtime.native.algorithms import folding_wins, folds_lines, mirroring_wins
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import contiguous_copy, move_record
from popc_runtime.native.forms import is_channels_last, product_record
from popc_runtime.native.record import Record, tensor_words
from popc_runtime.native.views import View, merged_view

__all__ = ["FOLDED", "conv_folds", "folded_conv", "folded_transposed"]

FOLDED: Final = "FoldWindows_f32"
_FOLDED_LINES: Final = "FoldLines_f32"
_AXES: Final = 2


def conv_folds(x: View, w: View, out: View, axes: Sequence[WindowAxis]) -> bool:
    """True if a convolution of one group, without a residual, takes less time so.

    Args:
        x: [N, C, *sizes].
        w: [M, C, *kernel].
        out: [N, M, *results].
        axes: Of the windows.
    """
    turned = (w.shape[1], w.shape[0], *w.shape[2:])
    last = is_channels_last(x) and not x.is_contiguous
    moves = all(axis.stride == 1 for axis in axes) and out.is_contiguous
    return moves and mirroring_wins(x.shape, w.shape, last=last) and _suits(x, turned, axes)


def folded_conv(
    binding: NativeBinding, axes: Sequence[WindowAxis], activation: tuple[int, ...]
) -> Record:
    """The records of X [N, C, *sizes], W [M, C, *kernel], [B [M]], where `conv_folds` is true."""
    w = binding.input(1)
    back = (slice(None), slice(None), *(slice(None, None, -1) for _ in axes))
    mirrored = w.transpose(1, 0, *range(2, w.ndim))[back]
    before: tuple[Record, ...] = ()
    if binding.is_constant(1):
        weights = contiguous_copy(mirrored)
    else:
        weights = binding.scratch.take(mirrored.shape, DType.FLOAT32)
        before = (move_record(weights, mirrored),)
    words = [(1, axis.dilation, (axis.kernel - 1) * axis.dilation - axis.begin) for axis in axes]
    return _folded(binding, weights, words, activation, before)


def folded_transposed(
    binding: NativeBinding, axes: Sequence[WindowAxis], activation: tuple[int, ...]
) -> Record | None:
    """X [N, C, *sizes], W [C, M, *kernel], [B [M]]; ``None`` where other ways are faster.

    ``axes`` are those of the result.
    """
    x, w, out = binding.input(0), binding.input(1), binding.output()
    plain = w.is_contiguous and out.is_contiguous and binding.integer("group", 1) == 1
    if not plain or not _suits(x, w.shape, axes):
        return None
    words = [(axis.stride, axis.dilation, axis.begin) for axis in axes]
    return _folded(binding, w, words, activation, ())


def _suits(x: View, w: Sequence[int], axes: Sequence[WindowAxis]) -> bool:
    plain = len(axes) <= _AXES and (axes[-1].dilation == 1 or folds_lines(x.shape, w))
    lies = merged_view(x, (*x.shape[:2], -1)) is not None
    return plain and lies and folding_wins(x.shape, w, [axis.stride for axis in axes])


def _folded(
    binding: NativeBinding,
    w: View,
    axes: Sequence[tuple[int, ...]],
    activation: tuple[int, ...],
    before: tuple[Record, ...],
) -> Record:
    """The product of X [N, C, *sizes] and W [C, M, *kernel], and what adds up its windows."""
    x, out, bias = binding.input(0), binding.output(), binding.optional(2)
    pixels = merged_view(x, (*x.shape[:2], -1))
    assert pixels is not None
    weights, constant = w.reshape(len(w), -1), binding.is_constant(1)
    batch, sizes, window = x.shape[:1], _plane(x.shape[2:]), (w.shape[1], *_plane(w.shape[2:]))
    by_lines = folds_lines(x.shape, w.shape)
    shape = (*batch, *window, *sizes) if by_lines else (*batch, *sizes, *window)
    products = binding.scratch.take(shape, DType.FLOAT32)
    left, right = (weights.T, pixels) if by_lines else (pixels.transpose(0, 2, 1), weights)
    result = products.reshape(*batch, left.shape[-2], right.shape[-1])
    if len(x) == 1:
        result = result[0]
        left, right = (side[0] if side.ndim > 2 else side for side in (left, right))
    product = product_record(left, right, result, constant=constant and not by_lines)
    plane = out.reshape(*out.shape[:2], *_plane(out.shape[2:]))
    words = [*tensor_words(products), *tensor_words(plane), *tensor_words(bias)]
    words += () if len(axes) == _AXES else (1, 1, 0)
    words += [word for axis in axes for word in axis]
    kernel = _FOLDED_LINES if by_lines else FOLDED
    return Record(kernel, (*words, *activation), (products, w), None, (*before, product))


def _plane(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of two axes: a line is a plane of one."""
    return sizes if len(sizes) == _AXES else (1, *sizes)
