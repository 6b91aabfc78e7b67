"""Gradients of pooling, by definition: larger windows and images, strides, ties, element types.

`tests/autodiff/cases_pool.py` checks that they are the gradients of the forward ops.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attribute
from tests.support.oracles import run_ir

_RNG: Final = np.random.default_rng(22)
_Attributes = dict[str, Attribute]


def _random(*shape: int, dtype: Any = np.float32) -> Array:
    return _RNG.standard_normal(shape).astype(dtype)


def _windows(
    size: tuple[int, ...], out: tuple[int, ...], attributes: _Attributes
) -> list[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
    """Each window and the elements in it, in row-major order."""
    rank = len(size)
    kernel: Any = attributes["kernel_shape"]
    strides: Any = attributes.get("strides", (1,) * rank)
    dilations: Any = attributes.get("dilations", (1,) * rank)
    pads: Any = attributes.get("pads", (0,) * (2 * rank))
    found = []
    for window in product(*map(range, out)):
        starts = [w * s - p for w, s, p in zip(window, strides, pads[:rank], strict=True)]
        taps = (
            tuple(start + t * d for start, t, d in zip(starts, tap, dilations, strict=True))
            for tap in product(*map(range, kernel))
        )
        inside = [tap for tap in taps if all(0 <= i < n for i, n in zip(tap, size, strict=True))]
        found.append((window, inside))
    return found


def _at(place: tuple[int, ...]) -> Any:
    """In all images and channels."""
    return (slice(None), slice(None), *place)


def _maxima(dy: Array, x: Array, attributes: _Attributes) -> Array:
    result = np.zeros(x.shape)
    for window, places in _windows(x.shape[2:], dy.shape[2:], attributes):
        if not places:
            continue
        elements = np.stack([x[_at(place)] for place in places], axis=-1)
        first = elements.argmax(axis=-1)
        for number, place in enumerate(places):
            result[_at(place)] += np.where(first == number, dy[_at(window)], 0)
    return result


def _sums(dy: Array, shape: tuple[int, ...], attributes: _Attributes, *, mean: bool) -> Array:
    result = np.zeros(shape)
    for window, places in _windows(shape[2:], dy.shape[2:], attributes):
        for place in places:
            result[_at(place)] += dy[_at(window)] / (len(places) if mean else 1)
    return result


# Shape of the operand and attributes
_CASES: Final[list[tuple[tuple[int, ...], _Attributes]]] = [
    ((3, 5, 8, 6), {"kernel_shape": (2, 2), "strides": (2, 2)}),
    ((3, 70, 40, 30), {"kernel_shape": (2, 2), "strides": (2, 2)}),
    ((2, 3, 9, 11), {"kernel_shape": (2, 2), "strides": (2, 2)}),
    ((2, 3, 12, 10), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((2, 3, 11, 9), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((2, 3, 11, 9), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}),
    ((2, 3, 7, 8), {"kernel_shape": (5, 4), "pads": (2, 1, 2, 2)}),
    ((1, 2, 4, 5), {"kernel_shape": (7, 6), "pads": (4, 5, 3, 2), "strides": (2, 3)}),
    ((1, 2, 12, 14), {"kernel_shape": (3, 2), "dilations": (3, 4), "pads": (2, 1, 0, 3)}),
    ((1, 2, 12, 14), {"kernel_shape": (2, 3), "strides": (4, 5)}),
    ((1, 2, 6, 7), {"kernel_shape": (1, 3)}),
    ((1, 2, 6, 8), {"kernel_shape": (3, 1), "strides": (1, 2)}),
    ((1, 2, 3, 3), {"kernel_shape": (1, 1)}),
    ((2, 3, 10), {"kernel_shape": (4,), "strides": (2,), "pads": (1, 1)}),
    ((1, 2, 6, 5, 4), {"kernel_shape": (2, 3, 2), "strides": (2, 1, 2), "pads": (0, 1, 0) * 2}),
]


def _pooled(x: Array, attributes: _Attributes) -> Array:
    return run_ir("MaxPool", [x], attributes)[0]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("shape", "attributes"), _CASES)
def test_maxima(shape: tuple[int, ...], attributes: _Attributes, *, ties: bool) -> None:
    x = _random(*shape)
    x = np.maximum(x.round(), 0) if ties else x
    y = _pooled(x, attributes)
    dy = _random(*y.shape)
    (actual,) = run_ir("MaxPoolGrad", [dy, x, y], attributes)
    np.testing.assert_allclose(actual, _maxima(dy, x, attributes), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("shape", "attributes"), _CASES)
def test_averages(shape: tuple[int, ...], attributes: _Attributes) -> None:
    dy = _random(*_pooled(_random(*shape), attributes).shape)
    for mean in (True, False):
        given = {**attributes, "shape": shape, "sum": int(not mean)}
        (actual,) = run_ir("AveragePoolGrad", [dy], given)
        wanted = _sums(dy, shape, attributes, mean=mean)
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_types(dtype: Any) -> None:
    attributes = _CASES[3][1]
    x = _random(2, 3, 12, 10, dtype=dtype)
    y = _pooled(x, attributes)
    dy = _random(*y.shape, dtype=dtype)
    (actual,) = run_ir("MaxPoolGrad", [dy, x, y], attributes)
    assert actual.dtype == dtype
    tolerance = 1e-2 if dtype == np.float16 else 1e-12
    np.testing.assert_allclose(actual, _maxima(dy, x, attributes), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [0, 3, 5])
def test_strided_operands(case: int) -> None:
    (images, channels, height, width), attributes = _CASES[case]
    x = _random(images, height, width, channels).transpose(0, 3, 1, 2)
    y = _pooled(x, attributes)
    strided = np.ascontiguousarray(y.swapaxes(2, 3)).swapaxes(2, 3)
    dy = np.broadcast_to(_random(1, channels, 1, 1), y.shape)
    (actual,) = run_ir("MaxPoolGrad", [dy, x, strided], attributes)
    np.testing.assert_allclose(actual, _maxima(dy, x, attributes), rtol=1e-5, atol=1e-6)
    given = {**attributes, "shape": x.shape}
    (actual,) = run_ir("AveragePoolGrad", [dy], given)
    wanted = _sums(dy, x.shape, attributes, mean=True)
    np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


def test_nothing_is_lost_where_windows_hold_no_number() -> None:
    x = np.full((1, 1, 2, 2), np.nan, np.float32)
    dy = np.ones((1, 1, 1, 1), np.float32)
    attributes: _Attributes = {"kernel_shape": (2, 2), "strides": (2, 2)}
    (actual,) = run_ir("MaxPoolGrad", [dy, x, _pooled(x, attributes)], attributes)
    assert actual.sum() == 1


def test_without_images() -> None:
    x, y = np.zeros((0, 2, 4, 4), np.float32), np.zeros((0, 2, 2, 2), np.float32)
    attributes: _Attributes = {"kernel_shape": (2, 2), "strides": (2, 2)}
    assert run_ir("MaxPoolGrad", [y, x, y], attributes)[0].shape == x.shape
    given = {**attributes, "shape": x.shape}
    assert run_ir("AveragePoolGrad", [y], given)[0].shape == x.shape


def test_shapes_that_do_not_fit() -> None:
    attributes: _Attributes = {"kernel_shape": (2, 2), "strides": (2, 2)}
    x, y = _random(1, 2, 4, 4), _random(1, 2, 3, 2)
    with pytest.raises(ModelError, match="pooled to another type"):
        run_ir("MaxPoolGrad", [y, x, y], attributes)
    with pytest.raises(ModelError, match="is not what"):
        run_ir("AveragePoolGrad", [y], {**attributes, "shape": x.shape})
