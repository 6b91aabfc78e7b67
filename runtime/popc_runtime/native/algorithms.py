"""The choice between algorithms of an instruction: by its shape alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from popc_runtime.ground.hints import Final
from popc_runtime.native.costs import LEAST_PIXELS, MOST_PIXELS

__all__ = [
    "copies_fit",
    "direct_wins",
    "fits_rows",
    "folding_wins",
    "folds_lines",
    "lines_win",
    "mirroring_wins",
    "planes_win",
    "rows_win",
    "winograd_rows_win",
    "winograd_sums_win",
    "winograd_wins",
]

_RESULT: Final = 4  # of a tile
_MOST_JUTTING: Final = 2.4  # results of tiles for one of the image: of 2.1, 0.6 to 0.8 of the time
# Along one axis it takes 8 products for six results of three taps, or four of up to five; longer
# windows are divided.  A product takes as much longer than one of sums as was measured with AVX2
# and AVX-512; transforms take the time of so many for a channel of the input and of the result, and
# reading the weights that of so many rows.
_AXIS_POINTS: Final = 8
_SHORT_RESULTS: Final = 6
_AXIS_TAPS: Final = 5
_AXIS_PRODUCT: Final = 1.2
_AXIS_TRANSFORMS: Final = 22
_ROWS_TO_LOAD: Final = 4
_AXIS_WINS: Final = 0.89
# What Winograd's algorithm adds up for gradients of weights: 0.4 to 0.9 of the time of direct sums.
_VECTOR: Final = 16  # channels
_ADDED_CHANNELS: Final = 32
_ADDED_PIXELS: Final = 64  # of all images
# A thread's copies of an image, which are to stay in its second cache, in floats.
_MOST_COPIED: Final = 1 << 16
_MOST_FLOATS: Final = 1 << 22  # of copies that need not stay there: 16 MiB for each thread
_WIDEST: Final = 32  # columns of a result: where lines are longer, collecting windows is fast
# Few channels of a result that read long windows: collecting these takes longer than the products.
# Images are turned in 0.6 to 0.85 of the time, up to so many pixels.
_FEW_RESULTS: Final = 32
_LONG_WINDOW: Final = 512
_SOME_PIXELS: Final = 256
# Single pixels of few, many channels each, where vectors of pixels have a seventh of their lanes
# empty: those of 7 x 7 take 0.75 to 0.9 of the time as if they were channels-last, long windows
# 0.6 to 0.95, where results fill a vector with their channels.
_LANES: Final = 32  # of tiles, beyond as many as half of them have
_MOST_LANES: Final = 112
_SPREAD_CHANNELS: Final = 128
# Windows that leap, and overlap little, are read once, so that collecting them pays less: 0.75 to
# 0.95 of the time, where they have as many numbers at least.
_LEAP: Final = 4
_LEAPING_WINDOW: Final = 128
# Channels of the result that take as long as collecting windows, as measured for 8 to 48 of them.
_COLLECTING: Final = 8
_ROWS_WIN: Final = 0.95
_FILLED: Final = 0.8  # of the lanes
# What rows of channels-last images are computed of (csrc/kernels/conv/depthwise_rows.c).
_ROW_GROUPS: Final = (4, 8)  # channels of a group
_ROW_CHANNELS: Final = 16  # of all groups: a vector of any processor
_ROW_TAPS: Final = 3  # in a line; of a column at most:
_ROW_LINES: Final = 7
_ROW_WIDTH: Final = 4  # results of a line
_LEAST_IMAGES: Final = 8  # a guess: of fewer, threads get too few chunks to share them evenly
# Otherwise products of some 10 us, of which threads want no share: 0.65 to 0.75 of the time where
# lines are that short, and channels that many.
_LITTLE_WORK: Final = 1 << 19
_SHORT_LINE: Final = 16
_SOME_CHANNELS: Final = 4
# Convolutions by products with all taps: channels of the result, the fewest of the input with
# more of these.  Where windows move by more than one element, the fewest of the input for each.
_LEAST_RESULTS: Final = 4
_FEW_FOLDED: Final = 8
_MANY_FOLDED: Final = 32
_FOLDED_FOR_EACH: Final = 16
_LONG_LINE: Final = 32
_SHORT_WINDOW: Final = 3


def winograd_wins(channels: int, result: Sequence[int], dilations: Sequence[int] = (1, 1)) -> bool:
    """True if a 3 x 3 convolution takes less time by Winograd's algorithm.

    Whether the weights are known before the first run does not matter, nor how many images there
    are: results must not depend on where weights are kept, or on how a batch is divided.

    Args:
        channels: Of the input.
        result: [N, M, H, W].
        dilations: Of the windows, for each axis.
    """
    sizes = result[2:]
    tiles = prod(
        _tiles(size, dilation, _RESULT) for size, dilation in zip(sizes, dilations, strict=True)
    )
    least = [pixels for known, pixels in LEAST_PIXELS if known <= min(channels, result[1])]
    # Tiles that jut out of the image cost as much as others.
    of_tiles = tiles * _RESULT**2
    many = bool(least) and prod(sizes) ** 2 >= least[-1] * of_tiles
    return many and of_tiles <= _MOST_JUTTING * prod(sizes)


def _tiles(size: int, dilation: int, results: int) -> int:
    """Tiles of an axis: results of one lie ``dilation`` apart."""
    in_turn = -(-size // dilation)
    return min(size, dilation) * -(-in_turn // results)


def winograd_rows_win(
    channels: int, result: Sequence[int], window: Sequence[int], dilation: int
) -> bool:
    """The same for a convolution along one axis.

    Args:
        channels: Of the input.
        result: [N, M, H, W].
        window: [kH, kW], one of which is 1.
        dilation: Of the other one.
    """
    taps, length = max(zip(window, result[2:], strict=True))
    parts = 1 + max(0, -(-(taps - _AXIS_TAPS) // _RESULT))
    results = _SHORT_RESULTS if taps == _SHORT_WINDOW else _RESULT
    # Every part but the first one reads the elements of a tile that comes later.
    tiles = _tiles(length, dilation, results) + (parts - 1) * min(length, dilation)
    lines = prod(result[2:]) // length
    products = _AXIS_POINTS * parts * (lines * tiles + _ROWS_TO_LOAD)
    sums = taps * (lines * length + _ROWS_TO_LOAD)
    transforms = _AXIS_TRANSFORMS / parts * (1 / channels + 1 / result[1])
    return products * (_AXIS_PRODUCT + transforms) < _AXIS_WINS * sums


def winograd_sums_win(w: Sequence[int], dy: Sequence[int]) -> bool:
    """True if the gradient of 3 x 3 weights takes less time by Winograd's algorithm.

    Args:
        w: [M, C, 3, 3].
        dy: [N, M, H, W].
    """
    sizes = dy[2:]
    tiles = prod(-(-size // _RESULT) for size in sizes)
    fills = w[0] % _VECTOR == w[1] % _VECTOR == 0 and min(w[:2]) >= _ADDED_CHANNELS
    # Tiles that jut out of the image cost as much as others.
    whole = 4 * prod(sizes) >= 3 * tiles * _RESULT**2
    return fills and whole and dy[0] * prod(sizes) >= _ADDED_PIXELS


def direct_wins(w: Sequence[int], result: Sequence[int], strides: Sequence[int]) -> bool:
    """True if a convolution of images that are not channels-last is best computed as if they were.

    An image is then turned first.  Where there are few pixels, that is little, and no vectors of
    them could be filled.  How many images there are does not matter: sums have another order.

    Args:
        w: [M, C / group, *kernel].
        result: [N, M, *sizes].
        strides: Of the windows, for each axis.
    """
    pixels, summed = prod(result[2:]), prod(w[1:])
    if prod(w[2:]) == 1:
        return min(w[:2]) >= _SPREAD_CHANNELS and _leaves_lanes_empty(pixels)
    if min(strides) >= _LEAP and summed >= _LEAPING_WINDOW:
        return True
    if summed >= _LONG_WINDOW and w[0] >= _VECTOR and _leaves_lanes_empty(pixels):
        return True
    most = [known for least, known in MOST_PIXELS if least <= summed]
    if w[0] <= _FEW_RESULTS and summed >= _LONG_WINDOW:
        most.append(_SOME_PIXELS)
    return bool(most) and pixels <= most[-1]


def _leaves_lanes_empty(pixels: int) -> bool:
    """True if tiles of so many pixels have at least an eighth of their lanes empty."""
    of_tiles = _LANES if pixels > _LANES // 2 else _LANES // 2
    return 7 * -(-pixels // of_tiles) * of_tiles >= 8 * pixels and pixels <= _MOST_LANES


def copies_fit(w: Sequence[int], result: Sequence[int]) -> bool:
    """True if copies of a channel, one for each tap of the last axis, are not much larger than it.

    Args:
        w: [M, C / group, *kernel].
        result: [N, M, *sizes].
    """
    return _copied(w, result) <= _MOST_FLOATS


def _copied(w: Sequence[int], result: Sequence[int]) -> int:
    """Floats of a channel's copies, one for each tap of the last axis that is not only 1."""
    axes = [axis for axis in zip(w[2:], result[2:], strict=True) if axis != (1, 1)]
    *before, (taps, width) = axes or [(1, 1)]
    lines = prod(count for _, count in before) + prod(kernel for kernel, _ in before)
    return taps * lines * width


def lines_win(x: Sequence[int], w: Sequence[int], result: Sequence[int]) -> bool:
    """True if windows of a convolution are best read from copies of the image for each tap.

    Otherwise they are collected before they are multiplied, which takes long if lines are short.
    Both add up the same numbers in the same order.

    Args:
        x: [N, C, *sizes].
        w: [M, C / group, *kernel].
        result: [N, M, *sizes].
    """
    planes = x[0] * (x[1] // w[1])
    copied = w[1] * _copied(w, result)
    few_axes = len(x) <= 4 and prod(w[2:]) > 1
    fits = copied <= _MOST_COPIED and result[-1] <= _WIDEST
    little = x[0] * prod(w) * prod(result[2:]) <= _LITTLE_WORK
    little = little and result[-1] <= _SHORT_LINE and w[1] >= _SOME_CHANNELS
    return few_axes and fits and (planes >= _LEAST_IMAGES or little)


def rows_win(w: Sequence[int], result: Sequence[int], group: int) -> bool:
    """True if vectors of a convolution are best filled from one row of the result each.

    Otherwise windows of pixels that lie in two rows are collected before they are multiplied, which
    takes the time of so many channels of the result.

    Args:
        w: [M, C / group, *kernel].
        result: [N, M, *sizes].
        group: How many groups of channels there are.
    """
    width, channels = result[-1], w[0] // group
    if width < _VECTOR or width % _VECTOR == 0 or prod(w[2:]) == 1:
        return False
    filled = -(-width // _VECTOR) * _VECTOR / width
    collected = 1 + _COLLECTING / channels * min(1, _LANES / width)
    return filled < _ROWS_WIN * collected


def planes_win(
    w: Sequence[int], result: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> bool:
    """True if a convolution of one group is best computed plane by plane.

    Channels side by side would leave lanes of vectors empty, which pixels of a row fill: 0.4 to
    0.85 of the time.

    Args:
        w: [M, C, *kernel].
        result: [N, M, *sizes].
        strides: Of the windows, for each axis.
        dilations: The same.
    """
    if len(w) != 4 or prod(w[2:]) == 1 or result[-1] < _VECTOR:
        return False
    if tuple(w[2:]) == (3, 3) and max(strides) == 1 and winograd_wins(w[1], result, dilations):
        return False
    return all(_FILLED * -(-size // _VECTOR) * _VECTOR > size for size in w[:2])


def folding_wins(x: Sequence[int], w: Sequence[int], strides: Sequence[int]) -> bool:
    """True if a transposed convolution is best made of products of its pixels with all taps.

    Few channels of the result fill no tile, and few pixels no vector: 0.3 to 0.9 of the time.

    Args:
        x: [N, C, *sizes].
        w: [C, M, *kernel].
        strides: Of the windows, for each axis.
    """
    if prod(w[1:]) * prod(x[2:]) > _MOST_FLOATS:
        return False
    if max(strides) == 1:
        return w[1] <= _LEAST_RESULTS or (w[1] <= _FEW_FOLDED and w[0] >= _MANY_FOLDED)
    # Windows side by side have nothing to add up.
    overlap = tuple(w[2:]) != tuple(strides)
    few = overlap and w[1] <= _LEAST_RESULTS and w[0] >= _FOLDED_FOR_EACH * w[1]
    pixels = prod(x[2:])
    return few or (pixels < _VECTOR and w[0] >= _FOLDED_FOR_EACH * pixels)


def mirroring_wins(x: Sequence[int], w: Sequence[int], *, last: bool) -> bool:
    """True if a convolution that moves by one element is best made so, with mirrored weights.

    Others are fast, too, where images do not have their channels last: those of short lines and of
    few channels.

    Args:
        x: [N, C, *sizes].
        w: [M, C, *kernel].
        last: Whether the channels of a pixel lie side by side.
    """
    wide = x[-1] >= _LONG_LINE and (w[1] >= _MANY_FOLDED or w[0] == 1)
    many = w[1] >= 2 * _MANY_FOLDED
    return w[0] <= _LEAST_RESULTS and prod(w[2:]) > 1 and (last or wide or many)


def folds_lines(x: Sequence[int], w: Sequence[int]) -> bool:
    """True if its products are best added up line by line, not window by window.

    ``x`` and ``w`` are as for `folding_wins`.
    """
    return x[-1] >= _LONG_LINE and w[-1] <= _SHORT_WINDOW


def fits_rows(
    w: Sequence[int], result: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> bool:
    """True if a convolution of groups of few channels can be computed row by row.

    Its images have their channels last then, and as many of them as the result.

    Args:
        w: [M, C / group, *kernel].
        result: [N, M, *sizes].
        strides: Of the windows, for each axis.
        dilations: The same.
    """
    wide = w[0] >= _ROW_CHANNELS and w[1] in _ROW_GROUPS and result[-1] >= _ROW_WIDTH
    window = len(w) == 4 and w[3] == _ROW_TAPS and w[2] <= _ROW_LINES
    return wide and window and strides[-1] in (1, 2) and dilations[-1] == 1
