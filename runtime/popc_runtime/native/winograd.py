"""Convolutions 3 x 3 by Winograd's F(4 x 4, 3 x 3): a quarter of the products."""

from __future__ import annotations

from collections.abc import Sequence

from popc_runtime.kernels.parts.windows import WindowAxis
from popc_runtime.native.algorithms import winograd_sums_win, winograd_wins
from popc_runtime.native.forms import is_channels_last
from popc_runtime.native.views import View

__all__ = ["winograd_adds", "winograd_suits"]


def winograd_suits(operands: Sequence[View | None], out: View, axes: Sequence[WindowAxis]) -> bool:
    """True if a convolution of one group is one that takes less time so.

    Args:
        operands: X [N, C, H, W], W [M, C, 3, 3] and a residual of the result's shape or ``None``;
            all float32.
        out: [N, M, *results]; it, X and the residual are plain, or have their channels last.
        axes: Of the windows.
    """
    x, w, residual = operands
    assert x is not None
    assert w is not None
    if w.shape[2:] != (3, 3) or any(axis.stride != 1 or axis.dilation != 1 for axis in axes):
        return False
    images = [image for image in (x, out, residual) if image is not None]
    if not all(is_channels_last(image) or _is_plain(image) for image in images):
        return False
    if residual is not None and is_channels_last(residual) != is_channels_last(out):
        return False
    return winograd_wins(x.shape[1], out.shape)


def winograd_adds(x: View, w: View, dy: View, axes: Sequence[WindowAxis]) -> bool:
    """True if the gradient of the weights of a convolution of one group takes less time so.

    Args:
        x: [N, C, H, W], plain or with its channels last.
        w: [M, C, 3, 3], contiguous.
        dy: [N, M, *results], likewise.
        axes: Of the windows.
    """
    if w.shape[2:] != (3, 3) or any(axis.stride != 1 or axis.dilation != 1 for axis in axes):
        return False
    images_fit = all(is_channels_last(image) or _is_plain(image) for image in (x, dy))
    if not w.is_contiguous or not images_fit:
        return False
    return winograd_sums_win(w.shape, dy.shape)


def _is_plain(image: View) -> bool:
    """True if the pixels of a channel lie one behind the other."""
    unit = image.itemsize
    return image.strides[3] == unit and image.strides[2] == image.shape[3] * unit
