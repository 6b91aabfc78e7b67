"""Gradients of 3 x 3 weights by Winograd's algorithm are what sums of products are."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.native import Library
from popc_runtime.native import winograd as encoder
from tests.native.bindings import bound, encode, steady_results
from tests.support.fused_programs import channels_last

_TOLERANCE: Final = 7e-6  # of the largest result


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _attributes(pads: tuple[int, ...]) -> dict[str, Any]:
    return {"strides": (1, 1), "dilations": (1, 1), "pads": pads, "group": 1}


@pytest.mark.parametrize("layout", ["planes", "pixels"])
@pytest.mark.parametrize(
    ("images", "channels", "filters", "pads"),
    [
        ((1, 8, 8), 32, 32, (1, 1, 1, 1)),
        ((3, 11, 6), 48, 80, (0, 2, 2, 1)),
        ((1, 20, 4), 96, 32, (-1, 0, 1, 1)),
        ((70, 7, 8), 32, 144, (1, 1, 1, 1)),  # several groups of tiles
        ((2, 70, 61), 32, 48, (2, 2, 2, 2)),
    ],
)
def test_gradients_of_weights(
    library: Library,
    layout: str,
    images: tuple[int, int, int],
    channels: int,
    filters: int,
    pads: tuple[int, int, int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encoder, "winograd_sums_win", lambda *_: True)
    batch, *sizes = images
    x = _numbers(batch, channels, *sizes)
    results = [size + pads[axis] + pads[axis + 2] - 2 for axis, size in enumerate(sizes)]
    dy, w = _numbers(batch, filters, *results, seed=1), np.empty((filters, channels, 3, 3), "f")
    inputs: list[Array | None] = [dy, channels_last(x) if layout == "pixels" else x]
    attributes = _attributes(pads)
    record = encode("ConvWeightsGrad", bound(inputs, [w], attributes), library.numbers)
    assert record is not None
    assert record.kernel == "WinogradConvWeights_f32"
    (got,) = steady_results(library, "ConvWeightsGrad", inputs, [w], attributes, most_threads=3)
    expected = _sums(x, dy, pads)
    assert np.abs(got - expected).max() <= _TOLERANCE * np.abs(expected).max()


def _sums(x: Array, dy: Array, pads: tuple[int, ...]) -> Array:
    """The gradient of weights 3 x 3 in float64."""
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (2, 2), (2, 2)))
    rows, columns = dy.shape[2:]
    top, left = 2 - pads[0], 2 - pads[1]
    gradient = dy.astype(np.float64).transpose(1, 0, 2, 3).reshape(dy.shape[1], -1)
    taps = [
        gradient
        @ wide[:, :, i : i + rows, j : j + columns].transpose(0, 2, 3, 1).reshape(-1, x.shape[1])
        for i in range(top, top + 3)
        for j in range(left, left + 3)
    ]
    return np.stack(taps, -1).reshape(dy.shape[1], x.shape[1], 3, 3)


@pytest.mark.parametrize(
    ("change", "x", "dy"),
    [
        ({"winograd": 0}, (1, 64, 8, 8), (1, 64, 8, 8)),
        ({"strides": (2, 2)}, (1, 64, 16, 16), (1, 64, 8, 8)),
        ({}, (1, 64, 6, 6), (1, 64, 6, 6)),
        ({}, (9, 64, 2, 4), (9, 64, 2, 4)),
        ({}, (1, 64, 8, 8), (1, 20, 8, 8)),
        ({}, (1, 16, 8, 8), (1, 64, 8, 8)),
    ],
)
def test_which_gradients_of_weights_it_is_not_for(
    library: Library, change: dict[str, Any], x: tuple[int, ...], dy: tuple[int, ...]
) -> None:
    attributes = {**_attributes((1,) * 4), **change}
    w = np.empty((dy[1], x[1], 3, 3), np.float32)
    binding = bound([_numbers(*dy), _numbers(*x)], [w], attributes)
    record = encode("ConvWeightsGrad", binding, library.numbers)
    assert record is not None
    assert record.kernel == "ConvWeights_f32"
