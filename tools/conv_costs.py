"""Measure which kernels of convolutions are faster, and print runtime/popc_runtime/native/costs.py.

python -m tools.conv_costs > costs.py && mv costs.py runtime/popc_runtime/native/costs.py

The tables are made once, on one processor, and stored: which algorithm computes a convolution
follows from its shape, so that results do not depend on the machine.  Everything runs on one
thread, by turns, as in a network: the weights are known, but not in the caches, where the image is.
The least processor time of some runs counts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import dropwhile, pairwise, product
from math import isqrt, prod
from time import thread_time
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from popc_runtime.format import Array
from popc_runtime.native import Library, NativeProgram, Record, find_library, variants
from tests.native.bindings import bound, encode

__all__ = ["costs_page", "direct_ratio", "ratio"]

_CHANNELS: Final = (16, 24, 32, 64, 128, 256, 512)
_SIZES: Final = (8, 12, 16, 20, 28, 32, 40, 56)
_BATCHES: Final = (1, 8)
_MOST_PRODUCTS: Final = 500_000_000
_SUMMED: Final = (24, 48, 96, 192, 384, 768, 1536)
_PIXELS: Final = (1, 4, 9, 16, 25, 36, 49, 64, 100, 144, 196)
_TAPS: Final = 3  # of an axis
_ROUNDS: Final = 12
_CACHES: Final = 1 << 23  # floats: what other layers leave in the caches
_WINS: Final = 0.95  # in time: less is not worth other rounding
_NEVER: Final = 1 << 30
_PAGE: Final = '''\
"""The fastest algorithm of a convolution by its shape: `tools/conv_costs.py`."""

from __future__ import annotations

from typing import Final

__all__ = ["LEAST_PIXELS", "MOST_PIXELS"]

# From where on Winograd's algorithm beats the sum of products: pixels of a result of whole tiles,
# by channels of the input or of the result, whichever are fewer: those of the last row that is not
# above.
LEAST_PIXELS: Final = (
{})

# Up to where images with their channels first are best turned and read pixel by pixel: pixels of a
# result, by numbers of a window: those of the last row that is not above.
MOST_PIXELS: Final = (
{})
'''


def costs_page() -> str:
    """The file.

    Raises:
        RuntimeError: there are no native kernels on this machine.
    """
    libraries = [library for name in variants() if (library := find_library(name))]
    if not libraries:
        raise RuntimeError("there are no native kernels on this machine")
    least = [(channels, _least_pixels(libraries, channels)) for channels in _CHANNELS]
    most = [(summed, _most_pixels(libraries, summed)) for summed in _SUMMED]
    steps = [most[0], *(row for before, row in pairwise(most) if row[1] != before[1])]
    return _PAGE.format(
        _rows(dropwhile(lambda row: row[1] == _NEVER, least)),
        _rows(dropwhile(lambda row: row[1] == 0, steps)),
    )


def _rows(rows: Iterable[tuple[int, int]]) -> str:
    return "".join(f"    ({size}, {pixels}),\n" for size, pixels in rows)


def _least_pixels(libraries: Sequence[Library], channels: int) -> int:
    """The smallest image from which on Winograd's algorithm wins; very many if it never does.

    That is decided for all kinds of kernels, batches and layouts of images, by the mean.
    """
    least = _NEVER
    sizes = [size for size in _SIZES if (size * channels) ** 2 * 9 <= _MOST_PRODUCTS]
    for size in reversed(sizes):
        kinds = product(libraries, (False, True), _BATCHES)
        ratios = [
            ratio(kind, channels, size, last=last, batch=batch) for kind, last, batch in kinds
        ]
        found = prod(ratios) ** (1 / len(ratios))
        print(f"{channels:4} channels {size:3} x {size:<3} {found:.2f}", file=sys.stderr)
        if found > _WINS:
            break
        least = size * size
    return least


def ratio(library: Library, channels: int, size: int, *, last: bool, batch: int) -> float:
    """Time by Winograd's algorithm over that by the sum of products.

    Args:
        library: Whose kernels.
        channels: Of the input and of the result.
        size: Of the image, both ways.
        last: Whether channels lie side by side.
        batch: Images.
    """
    random = np.random.default_rng(0)
    x, out = (random.standard_normal((batch, channels, size, size), np.float32) for _ in range(2))
    if last:
        x, out = _channels_last(x), _channels_last(out)
    w = random.standard_normal((channels, channels, 3, 3), np.float32)
    attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1), "group": 1}
    records: list[Any] = []
    for winograd in (1, 0):
        binding = bound([x, w, None, None], [out], {**attributes, "winograd": winograd}, (1,))
        with patch("popc_runtime.native.winograd.winograd_wins", lambda *_: True):
            records.append(encode("Conv", binding, library.numbers))
        assert (records[-1].kernel == "WinogradConv_f32") == bool(winograd)
    return _ratio_of(library, records, x, (w, out))


def _most_pixels(libraries: Sequence[Library], summed: int) -> int:
    """The largest image up to which the direct kernel wins; 0 if it never does."""
    most = 0
    for pixels in _PIXELS:
        kinds = product(libraries, (1, 2), _BATCHES)
        ratios = [
            direct_ratio(kind, summed, pixels, axes=axes, batch=batch)
            for kind, axes, batch in kinds
        ]
        found = prod(ratios) ** (1 / len(ratios))
        print(f"{summed:4} numbers {pixels:3} pixels {found:.2f}", file=sys.stderr)
        if found > _WINS:
            break
        most = pixels
    return most


def direct_ratio(library: Library, summed: int, pixels: int, *, axes: int, batch: int) -> float:
    """Time of the direct kernel, on images with their channels first, over that of the others.

    Args:
        library: Whose kernels.
        summed: Numbers of a window.
        pixels: Of the result, a square.
        axes: Of the images, one or two.
        batch: Images.
    """
    random = np.random.default_rng(0)
    channels = max(1, round(summed / _TAPS**axes))
    sizes = (pixels,) if axes == 1 else (isqrt(pixels),) * axes
    x, out = (random.standard_normal((batch, channels, *sizes), np.float32) for _ in range(2))
    w = random.standard_normal((channels, channels, *(_TAPS for _ in sizes)), np.float32)
    attributes = {
        "strides": (1,) * axes, "dilations": (1,) * axes, "pads": (1,) * (2 * axes), "group": 1,
        "winograd": 0,
    }  # fmt: skip
    records: list[Any] = []
    for wins in (True, False):
        binding = bound([x, w, None, None], [out], attributes, (1,))
        with patch("popc_runtime.native.encoders.conv.direct_wins", lambda *_, wins=wins: wins):
            records.append(encode("Conv", binding, library.numbers))
        assert (records[-1].kernel == "ConvDirect_f32") == wins
    return _ratio_of(library, records, x, (w, out))


def _ratio_of(
    library: Library, records: Iterable[Record | None], x: Array, kept: tuple[Array, ...]
) -> float:
    """Time of the first record over that of the second; both read ``x``."""
    found = [record for record in records if record is not None]
    programs = [NativeProgram(library, [record], (x, *kept), 1) for record in found]
    best, others = [float("inf")] * 2, np.zeros(_CACHES, np.float32)
    for _ in range(_ROUNDS):
        for index, program in enumerate(programs):
            others += 1
            x += 0.0  # what the layer before has just written
            begin = thread_time()
            program.run()
            best[index] = min(best[index], thread_time() - begin)
    return best[0] / best[1]


def _channels_last(image: Array) -> Array:
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(image, 1, -1)), -1, 1)


if __name__ == "__main__":
    print(costs_page(), end="")
