"""Measure where Winograd's algorithm is faster, and print runtime/popc_runtime/native/costs.py.

python -m tools.conv_costs > costs.py && mv costs.py runtime/popc_runtime/native/costs.py

The table is made once, on one processor, and stored: which algorithm computes a convolution follows
from its shape, so that results do not depend on the machine.  Everything runs on one thread, by
turns, as in a network: the weights are known, but not in the caches, where the image is.  The least
processor time of some runs counts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import dropwhile, product
from math import prod
from time import thread_time
from typing import Final
from unittest.mock import patch

import numpy as np

from popc_runtime.format import Array
from popc_runtime.native import Library, NativeProgram, find_library, variants
from tests.native.bindings import bound, encode

__all__ = ["costs_page", "ratio"]

_CHANNELS: Final = (16, 24, 32, 64, 128, 256, 512)
_SIZES: Final = (8, 12, 16, 20, 28, 32, 40, 56)
_BATCHES: Final = (1, 8)
_MOST_PRODUCTS: Final = 500_000_000
_ROUNDS: Final = 4
_CACHES: Final = 1 << 23  # floats: what other layers leave in the caches
_WINS: Final = 0.95  # in time: less is not worth other rounding
_NEVER: Final = 1 << 30
_HEAD: Final = '''\
"""Where Winograd's algorithm takes less time than the sum of products: `tools/conv_costs.py`."""

from __future__ import annotations

from typing import Final

__all__ = ["LEAST_PIXELS"]

# Of a result of whole tiles, by channels of the input or of the result, whichever are fewer: those
# of the last row that is not above.
LEAST_PIXELS: Final = (
'''


def costs_page() -> str:
    """The file.

    Raises:
        RuntimeError: there are no native kernels on this machine.
    """
    libraries = [library for name in variants() if (library := find_library(name))]
    if not libraries:
        raise RuntimeError("there are no native kernels on this machine")
    found = ((channels, _least_pixels(libraries, channels)) for channels in _CHANNELS)
    rows = dropwhile(lambda row: row[1] == _NEVER, found)
    return _HEAD + "".join(f"    ({channels}, {pixels}),\n" for channels, pixels in rows) + ")\n"


def _least_pixels(libraries: Sequence[Library], channels: int) -> int:
    """The smallest image from which on Winograd's algorithm wins; very many if it never does.

    That is decided for all kinds of kernels, batches and layouts of images, by the mean.
    """
    least = _NEVER
    sizes = [size for size in _SIZES if (size * channels) ** 2 * 9 <= _MOST_PRODUCTS]
    for size in reversed(sizes):
        kinds = product(libraries, (False, True), _BATCHES)
        ratios = [ratio(one, channels, size, last=last, batch=batch) for one, last, batch in kinds]
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
    programs = []
    for winograd in (1, 0):
        binding = bound([x, w, None, None], [out], {**attributes, "winograd": winograd}, (1,))
        with patch("popc_runtime.native.winograd.winograd_wins", lambda *_: True):
            record = encode("Conv", binding, library.numbers)
        assert record is not None
        assert (record.kernel == "WinogradConv_f32") == bool(winograd)
        programs.append(NativeProgram(library, [record], (x, w, out), 1))
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
