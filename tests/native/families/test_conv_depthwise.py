"""Depthwise convolutions of all windows and layouts, beside their definition in float64.

A sum of n products has an error of at most about n roundings of the sum of their magnitudes,
whatever the order; the bias, the residual and the store are three more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.native import Library
from tests.native.bindings import steady_results

_ROUNDING: Final = 2.0**-23
_LAYOUTS: Final = ("planes", "last", "part")

# Channels, size of the image, taps, strides, dilations, pads.
_Case = tuple[int, Sequence[int], Sequence[int], Sequence[int], Sequence[int], Sequence[int]]

_CASES: Final[dict[str, _Case]] = {
    "3x3": (32, (9, 11), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "3x3, few channels": (5, (8, 9), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "3x3, rest of a vector": (27, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "3x3 by two": (48, (13, 15), (3, 3), (2, 2), (1, 1), (0, 1, 1, 0)),
    "3x3, wide": (16, (5, 67), (3, 3), (1, 1), (1, 1), (2, 0, 0, 3)),
    "3x3 by three": (33, (11, 23), (3, 3), (3, 3), (1, 1), (1, 1, 1, 1)),
    "3x3, dilated": (32, (15, 17), (3, 3), (1, 1), (3, 4), (3, 4, 3, 4)),
    "3x3, dilated beyond the image": (17, (9, 9), (3, 3), (1, 1), (12, 12), (12, 12, 12, 12)),
    "3x3, dilated by two": (16, (14, 16), (3, 3), (2, 2), (2, 2), (2, 2, 2, 2)),
    "3x3, dilated by three": (16, (17, 19), (3, 3), (3, 2), (2, 3), (2, 3, 2, 3)),
    "3x3, rows further apart than windows": (16, (23, 9), (3, 3), (4, 1), (1, 1), (1, 1, 1, 1)),
    "1x3": (24, (6, 12), (1, 3), (1, 1), (1, 1), (0, 1, 0, 1)),
    "4x3": (24, (9, 12), (4, 3), (1, 2), (1, 1), (2, 1, 1, 1)),
    "5x5": (40, (9, 13), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
    "5x5 by two": (16, (12, 14), (5, 5), (2, 2), (1, 1), (2, 2, 2, 2)),
    "7x7": (32, (14, 14), (7, 7), (1, 1), (1, 1), (3, 3, 3, 3)),
    "7x7, small": (64, (7, 7), (7, 7), (1, 1), (1, 1), (3, 3, 3, 3)),
    "1x1": (19, (6, 9), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    "2x2": (16, (8, 9), (2, 2), (1, 1), (1, 1), (1, 1, 0, 0)),
    "4x4 by four": (16, (16, 20), (4, 4), (4, 4), (1, 1), (0, 0, 0, 0)),
    "11x1": (20, (19, 8), (11, 1), (1, 1), (1, 1), (5, 0, 5, 0)),
    "1x11": (20, (5, 31), (1, 11), (1, 1), (1, 1), (0, 5, 0, 5)),
    "9x9 by two": (21, (16, 17), (9, 9), (2, 2), (1, 1), (4, 4, 4, 4)),
    "13x13, larger than the image": (32, (7, 7), (13, 13), (1, 1), (1, 1), (6, 6, 6, 6)),
    "31x31": (16, (12, 13), (31, 31), (1, 1), (1, 1), (15, 15, 15, 15)),
    "9x9, many lines": (20, (70, 33), (9, 9), (1, 1), (1, 1), (4, 4, 4, 4)),
    "lines that windows skip": (16, (40, 9), (3, 9), (7, 1), (1, 1), (0, 4, 0, 4)),
    "more border than image": (16, (6, 5), (1, 9), (1, 1), (1, 3), (0, 12, 0, 20)),
    "the whole image": (16, (3, 4), (3, 4), (1, 1), (1, 1), (0, 0, 0, 0)),
    "as large as the image, dilated": (16, (3, 4), (3, 4), (1, 1), (2, 2), (0, 0, 2, 3)),
    "as long as the line, dilated": (24, (5,), (5,), (1,), (3,), (0, 8)),
    "two columns": (40, (9, 2), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "line": (24, (50,), (31,), (1,), (1,), (15, 15)),
    "line by five": (24, (50,), (10,), (5,), (1,), (0, 0)),
    "causal line, dilated": (24, (40,), (3,), (1,), (8,), (16, 0)),
    "volume": (18, (5, 6, 7), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1, 1, 1, 1)),
    "volume by two": (18, (5, 7, 9), (3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1, 0, 1, 1)),
    "volume, along its depth": (16, (9, 4, 6), (5, 1, 1), (1, 1, 1), (2, 1, 1), (4, 0, 0, 4, 0, 0)),
}


def _numbers(*shape: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _laid(values: Array, layout: str) -> Array:
    if layout == "planes":
        return values
    turned = np.moveaxis(values, 1, -1)
    if layout == "part":  # the first channels of wider pixels
        wide = np.zeros((*turned.shape[:-1], turned.shape[-1] + 3), values.dtype)
        wide[..., :-3] = turned
        return np.moveaxis(wide[..., :-3], -1, 1)
    return np.moveaxis(np.ascontiguousarray(turned), -1, 1)


def _sums(
    x: Array, w: Array, strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int]
) -> Array:
    """Windows by their definition, tap by tap."""
    axes = len(strides)
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:], strict=True)])
    sizes = [
        (padded.shape[2 + i] - (w.shape[2 + i] - 1) * dilations[i] - 1) // strides[i] + 1
        for i in range(axes)
    ]
    total = np.zeros((len(x), len(w), *sizes))
    for tap in np.ndindex(*w.shape[2:]):
        part = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, dilations, sizes, strides, strict=True)
        )
        total += padded[:, :, *part] * w[:, 0, *tap].reshape(-1, *(1,) * axes)
    return total


@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("written", _LAYOUTS)
@pytest.mark.parametrize("name", _CASES)
def test_windows(library: Library, name: str, written: str, layout: str) -> None:
    channels, size, taps, strides, dilations, pads = _CASES[name]
    x, w = _numbers(2, channels, *size, seed=0), _numbers(channels, 1, *taps, seed=1)
    bias = _numbers(channels, seed=2)
    sums = _sums(x.astype(np.float64), w.astype(np.float64), strides, dilations, pads)
    sizes = _sums(np.abs(x), np.abs(w), strides, dilations, pads)
    residual = _numbers(*sums.shape, seed=3)
    column = bias.reshape(-1, *(1,) * len(size))
    exact = sums + column + residual
    activation = "Sigmoid" if layout == "part" else "Relu"
    expected = np.maximum(exact, 0) if activation == "Relu" else 1 / (1 + np.exp(-exact))
    attributes = {
        "strides": tuple(strides),
        "dilations": tuple(dilations),
        "pads": tuple(pads),
        "group": channels,
        "activation": activation,
    }
    inputs = [_laid(x, layout), w, bias, _laid(residual, written)]
    out = _laid(np.empty(sums.shape, np.float32), written)
    (got,) = steady_results(library, "Conv", inputs, [out], attributes, (1, 2), most_threads=3)
    bound = _ROUNDING * (w[0].size + 3) * (sizes + np.abs(column) + np.abs(residual))
    assert (np.abs(got - expected) <= bound + 4 * _ROUNDING).all()
