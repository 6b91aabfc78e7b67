"""Whatever kernel is chosen for a convolution does it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Final

import numpy as np
import pytest

from popc_runtime.native import Library, NativeProgram
from tests.native.bindings import bound, encode
from tests.support.fused_programs import channels_last

# Of a number of taps, or of results: those of all axes.
_FORMS: Final[dict[str, Callable[[int], tuple[int, ...]]]] = {
    "lines": lambda size: (size,),
    "rows": lambda size: (3 if size > 3 else 1, size),
    "columns": lambda size: (size, 1),
    "single rows": lambda size: (1, size),
    "squares": lambda size: (min(size, 30), min(size, 30)),
}
_CHANNELS: Final = (1, 3, 8, 12, 15, 16, 24)
_FILTERS: Final = (1, 12, 16, 64)
_TAPS: Final = (1, 2, 3, 5, 7, 19, 32)
_RESULTS: Final = (1, 7, 15, 16, 62, 500)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("form", _FORMS)
def test_kernels_take_what_is_chosen_for_them(library: Library, form: str, group: int) -> None:
    """Rules about time must not choose what a kernel refuses: an archive could not be loaded."""
    sizes = _FORMS[form]
    for channels, filters, taps, results in product(_CHANNELS, _FILTERS, _TAPS, _RESULTS):
        window, made = sizes(taps), sizes(results)
        if np.prod(window) > 100:
            continue
        read = [result + tap - 1 for result, tap in zip(made, window, strict=True)]
        x = np.empty((1, group * channels, *read), np.float32)
        out = np.empty((1, group * filters, *made), np.float32)
        w = np.zeros((group * filters, channels, *window), np.float32)
        ones = (1,) * len(window)
        none = (0,) * (2 * len(window))
        attributes = {"strides": ones, "dilations": ones, "pads": none, "group": group}
        for images in ([x, out], [channels_last(x), channels_last(out)]):
            binding = bound([images[0], w], [images[1]], attributes, (1,))
            record = encode("Conv", binding, library.numbers)
            assert record is not None
            NativeProgram(library, [record], binding, 1)
