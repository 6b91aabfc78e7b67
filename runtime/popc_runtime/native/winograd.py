"""Convolutions by Winograd's algorithm: those 3 x 3, and along one axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from popc_runtime.ground.hints import Final
from popc_runtime.kernels.parts.windows import WindowAxis
from popc_runtime.native.algorithms import winograd_rows_win, winograd_sums_win, winograd_wins
from popc_runtime.native.forms import is_channels_last
from popc_runtime.native.views import View

__all__ = ["as_image", "winograd_adds", "winograd_axes", "winograd_suits"]

_LEAST_CHANNELS: Final = 16  # that the kernel reads, as many as a vector has at most
_LEAST_TAPS: Final = 3  # along one axis
_MOST_TAPS: Final = 32


def winograd_suits(operands: Sequence[View | None], out: View, axes: Sequence[WindowAxis]) -> bool:
    """True if a convolution of one group is one that takes less time so.

    Args:
        operands: X [N, C, H, W], W [M, C, kH, kW] and a residual of the result's shape or ``None``,
            or all of them without H; all float32.
        out: [N, M, *results]; it, X and the residual are plain, or have their channels last.
        axes: Of the windows.
    """
    x, w, residual = operands
    assert x is not None
    assert w is not None
    if x.ndim not in (3, 4) or x.shape[1] < _LEAST_CHANNELS:
        return False
    if any(axis.stride != 1 for axis in axes):
        return False
    images = [as_image(image) for image in (x, out, residual) if image is not None]
    if not all(is_channels_last(image) or _is_plain(image) for image in images):
        return False
    # Of packed weights no other view is asked for: it would unpack them.
    window, result = w.shape[2:], as_image(out).shape
    window = (1, *window) if x.ndim == 3 else window
    dilations = [axis.dilation for axis in axes]
    if window == (3, 3):
        return winograd_wins(x.shape[1], result, dilations)
    if min(window) > 1 or not _LEAST_TAPS <= max(window) <= _MOST_TAPS:
        return False
    return winograd_rows_win(x.shape[1], result, window, max(dilations))


def as_image(view: View) -> View:
    """[N, C, H, W], of one row if ``view`` has no H."""
    return view[:, :, None] if view.ndim == 3 else view


def winograd_axes(axes: Iterable[WindowAxis]) -> list[int]:
    """The numbers of each axis of an image: its dilation, and elements before the first one."""
    known = [word for axis in axes for word in (axis.dilation, axis.begin)]
    return [1, 0, *known][-4:]


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
    unit, (rows, columns) = image.itemsize, image.shape[2:]
    lines = columns == 1 or image.strides[3] == unit
    return lines and (rows == 1 or image.strides[2] == columns * unit)
