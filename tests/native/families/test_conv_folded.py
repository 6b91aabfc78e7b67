"""Convolutions that are made of products of pixels with all taps give what others give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.native import Library, folded
from tests.native.bindings import bound, encode, numpy_results, steady_results

_KERNELS = ("FoldLines_f32", "FoldWindows_f32")


@pytest.fixture(autouse=True, params=_KERNELS)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either way, whether it pays or not."""
    name = str(request.param)
    monkeypatch.setattr(folded, "folding_wins", lambda *_: True)
    monkeypatch.setattr(folded, "mirroring_wins", lambda *_, **__: True)
    monkeypatch.setattr(folded, "folds_lines", lambda *_: name == _KERNELS[0])
    return name


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _laid(image: Array, layout: str) -> Array:
    if layout == "pixels":
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(image, 1, -1)), -1, 1)
    if layout == "part":
        wide = np.zeros((len(image), image.shape[1] + 3, *image.shape[2:]), np.float32)
        wide[:, 2:-1] = image
        return wide[:, 2:-1]
    return image


def _check(
    library: Library,
    opcode: str,
    inputs: list[Array | None],
    out: Array,
    attributes: dict[str, Any],
    constant: tuple[int, ...],
    kernel: str,
) -> None:
    record = encode(opcode, bound(inputs, [out], attributes, constant), library.numbers)
    assert record is not None
    assert record.kernel == kernel
    (expected,) = numpy_results(opcode, inputs, [out], attributes, constant)
    (got,) = steady_results(library, opcode, inputs, [out], attributes, constant, most_threads=3)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", ["planes", "pixels", "part"])
@pytest.mark.parametrize("constant", [(), (1, 2)])
@pytest.mark.parametrize(
    ("x", "w", "stride", "dilation", "pads"),
    [
        ((1, 5, 4, 6), (5, 3, 4, 4), (2, 2), (1, 1), (1, 1, 1, 1)),
        ((2, 9, 3, 37), (9, 2, 3, 3), (2, 2), (2, 1), (0, 1, 1, 0)),
        ((3, 4, 5, 5), (4, 7, 2, 2), (2, 2), (1, 1), (0, 0, 0, 0)),
        ((1, 3, 1, 1), (3, 5, 5, 6), (3, 1), (1, 1), (2, 2, 1, 0)),
        ((2, 6, 40), (6, 1, 16), (8,), (1,), (4, 4)),
        ((1, 2, 3, 2), (2, 4, 1, 2), (2, 5), (1, 1), (0, 0, 0, 0)),
        ((1, 8, 2, 5), (8, 1, 3, 5), (1, 2), (1, 1), (1, 6, 1, 6)),
    ],
)
def test_transposed(
    library: Library,
    x: tuple[int, ...],
    w: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    pads: tuple[int, ...],
    constant: tuple[int, ...],
    layout: str,
    kernel: str,
) -> None:
    rank = len(stride)
    sizes = [
        (x[2 + i] - 1) * stride[i] + (w[2 + i] - 1) * dilation[i] + 1 - pads[i] - pads[rank + i]
        for i in range(rank)
    ]
    image, weights = _laid(_numbers(*x), layout), _numbers(*w, seed=1)
    out = np.empty((x[0], w[1], *sizes), np.float32)
    attributes = {"strides": stride, "dilations": dilation, "pads": pads, "group": 1}
    for bias, activation in ((None, ""), (_numbers(w[1], seed=2), "Relu")):
        inputs = [image, weights, bias]
        named = {**attributes, "activation": activation}
        _check(library, "ConvTranspose", inputs, out, named, constant, kernel)


@pytest.mark.parametrize("layout", ["planes", "pixels", "part"])
@pytest.mark.parametrize("constant", [(), (1, 2)])
@pytest.mark.parametrize(
    ("x", "w", "dilation", "pads"),
    [
        ((1, 19, 7, 9), (3, 19, 3, 3), (1, 1), (1, 1, 1, 1)),
        ((2, 8, 5, 33), (1, 8, 5, 2), (1, 1), (2, 0, 1, 1)),
        ((2, 4, 33), (2, 4, 7), (1,), (3, 4)),
        ((1, 16, 9, 6), (2, 16, 3, 3), (3, 1), (3, 0, 3, 0)),
        ((1, 3, 4, 5), (4, 3, 4, 4), (1, 1), (0, 0, 0, 0)),
        ((1, 3, 6, 4), (1, 3, 3, 3), (1, 1), (-1, -1, 0, 1)),
    ],
)
def test_mirrored(
    library: Library,
    x: tuple[int, ...],
    w: tuple[int, ...],
    dilation: tuple[int, ...],
    pads: tuple[int, ...],
    constant: tuple[int, ...],
    layout: str,
    kernel: str,
) -> None:
    rank = len(dilation)
    sizes = [
        x[2 + i] + pads[i] + pads[rank + i] - (w[2 + i] - 1) * dilation[i] for i in range(rank)
    ]
    image, weights = _laid(_numbers(*x), layout), _numbers(*w, seed=1)
    out = np.empty((x[0], w[0], *sizes), np.float32)
    attributes = {"strides": (1,) * rank, "dilations": dilation, "pads": pads, "group": 1}
    for bias, activation in ((None, ""), (_numbers(w[0], seed=2), "Sigmoid")):
        inputs = [image, weights, bias, None]
        named = {**attributes, "activation": activation}
        _check(library, "Conv", inputs, out, named, constant, kernel)
