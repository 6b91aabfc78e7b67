"""Convolutions 3 x 3 by Winograd's F(4 x 4, 3 x 3): a quarter of the products."""

from __future__ import annotations

from collections.abc import Sequence

from popc_runtime.kernels.windows import Axis
from popc_runtime.native.algorithms import winograd_wins
from popc_runtime.native.forms import is_channels_last
from popc_runtime.native.record import Record, tensor_words
from popc_runtime.native.views import View

__all__ = ["winograd_record"]


def winograd_record(
    operands: Sequence[View | None],
    out: View,
    axes: Sequence[Axis],
    activation: tuple[int, ...],
    *,
    constant: bool,
) -> Record | None:
    """The record of a convolution of one group; ``None`` if it is another, or slower.

    Args:
        operands: X [N, C, H, W], contiguous W [M, C, 3, 3], then B [M] or ``None`` and a residual
            of the result's shape or ``None``; all float32.
        out: [N, M, *results]; it, X and the residual are plain, or have their channels last.
        axes: Of the windows.
        activation: Words of it.
        constant: Whether the weights are final.
    """
    x, w, bias, residual = operands
    assert x is not None
    assert w is not None
    if w.shape[2:] != (3, 3) or any(axis.stride != 1 or axis.dilation != 1 for axis in axes):
        return None
    images = [one for one in (x, out, residual) if one is not None]
    if not all(is_channels_last(one) or _is_plain(one) for one in images):
        return None
    if residual is not None and is_channels_last(residual) != is_channels_last(out):
        return None
    if not winograd_wins(x.shape[1], out.shape):
        return None
    words = [*tensor_words(x), *tensor_words(w, constant=constant), *tensor_words(out)]
    words += [*tensor_words(bias), *tensor_words(residual), *(axis.begin for axis in axes)]
    return Record("WinogradConv_f32", (*words, *activation))


def _is_plain(image: View) -> bool:
    """Whether the pixels of a channel lie one behind the other."""
    unit = image.itemsize
    return image.strides[3] == unit and image.strides[2] == image.shape[3] * unit
