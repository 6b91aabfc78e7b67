"""Normalisation of float64 against numbers of more bits, around the widths of sums and vectors."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.native import Library
from tests.native.bindings import steady_results

_EPSILON: Final = 1e-3
_LENGTHS: Final = (1, 2, 7, 8, 15, 16, 17, 31, 33, 200)
_MEAN: Final = 5.0
# By the inverse of at most 1 / sqrt(epsilon), terms of up to 16, and a scale below 8.
_LARGEST: Final = 16 * _EPSILON**-0.5 * 8


def _numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def _standard(x: Any, axes: tuple[int, ...], *, centred: bool = True) -> tuple[Any, Any, Any]:
    """The normalised numbers, means and inverse deviations, in as many bits as there are."""
    wide = x.astype(np.longdouble)
    mean = wide.mean(axes, keepdims=True) if centred else np.zeros(1, np.longdouble)
    inverse = 1 / np.sqrt(((wide - mean) ** 2).mean(axes, keepdims=True) + _EPSILON)
    return (wide - mean) * inverse, mean, inverse


def _assert_close(got: Any, wanted: Any, terms: int) -> None:
    bound = 2.0**-53 * (terms + 8) * _LARGEST
    np.testing.assert_allclose(got, wanted.astype(np.float64), rtol=0, atol=bound)


@pytest.mark.parametrize("length", _LENGTHS)
@pytest.mark.parametrize("parameters", [0, 1, 2])
@pytest.mark.parametrize("rows", [1, 3, 70])
def test_rows(library: Library, rows: int, parameters: int, length: int) -> None:
    x = _numbers(rows, length) + _MEAN
    scale, bias = _numbers(length, seed=1), _numbers(length, seed=2)
    given = [scale, bias][:parameters]
    standard, mean, inverse = _standard(x, (1,))
    wanted = standard * (scale if given else 1) + (bias if parameters == 2 else 0)
    outputs = [np.empty_like(x), *(np.empty((rows, 1)) for _ in range(2))]
    attributes = {"axis": 1, "epsilon": _EPSILON}
    got = steady_results(library, "LayerNormalization", [x, *given], outputs, attributes)
    for one, other in zip(got, (wanted, mean, inverse), strict=True):
        _assert_close(one, other, length)
    narrow = [outputs[0], *(np.empty((rows, 1), np.float32) for _ in range(2))]
    same = steady_results(library, "LayerNormalization", [x, *given], narrow, attributes)
    for one, other in zip(same, got, strict=True):
        np.testing.assert_array_equal(one, other.astype(one.dtype))
    if parameters < 2:
        wanted = _standard(x, (1,), centred=False)[0] * (scale if given else 1)
        (one,) = steady_results(library, "RMSNormalization", [x, *given], outputs[:1], attributes)
        _assert_close(one, wanted, length)


@pytest.mark.parametrize("pixels", _LENGTHS)
@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (6, 1), (6, 3), (6, 6), (17, 17)])
def test_groups(library: Library, channels: int, groups: int, pixels: int) -> None:
    x = _numbers(2, channels, pixels) + _MEAN
    scale, bias = (_numbers(channels, seed=seed) for seed in (1, 2))
    terms = channels // groups * pixels
    standard = _standard(x.reshape(2, groups, terms), (2,))[0].reshape(x.shape)
    wanted = standard * scale[:, None] + bias[:, None]
    out, attributes = [np.empty_like(x)], {"num_groups": groups, "epsilon": _EPSILON}
    (got,) = steady_results(library, "GroupNormalization", [x, scale, bias], out, attributes)
    _assert_close(got, wanted, terms)
    if groups == channels:
        attributes = {"epsilon": _EPSILON}
        (got,) = steady_results(library, "InstanceNormalization", [x, scale, bias], out, attributes)
        _assert_close(got, wanted, terms)


@pytest.mark.parametrize("pixels", [(), (1,), (7,), (3, 11), (40, 41)])
@pytest.mark.parametrize("channels", [1, 7, 16, 33])
def test_given_statistics(library: Library, channels: int, pixels: tuple[int, ...]) -> None:
    x = _numbers(3, channels, *pixels) + _MEAN
    scale, bias, mean, variance = (_numbers(channels, seed=seed) for seed in range(4))
    variance = variance**2
    place = (-1, *(1 for _ in pixels))
    wide = [part.astype(np.longdouble).reshape(place) for part in (scale, bias, mean, variance)]
    wanted = (x - wide[2]) / np.sqrt(wide[3] + _EPSILON) * wide[0] + wide[1]
    operands = [x, scale, bias, mean, variance]
    attributes = {"epsilon": _EPSILON}
    out = [np.empty_like(x)]
    (got,) = steady_results(library, "BatchNormalization", operands, out, attributes)
    _assert_close(got, wanted, 1)


def test_undefined_rows_stay_so_alone(library: Library) -> None:
    x = _numbers(5, 33)
    out, attributes = [np.empty_like(x)], {"axis": 1, "epsilon": _EPSILON}
    (plain,) = steady_results(library, "LayerNormalization", [x], out, attributes)
    x[1, 32], x[3, 0] = np.nan, np.inf
    (got,) = steady_results(library, "LayerNormalization", [x], out, attributes)
    assert np.isnan(got[[1, 3]]).all()
    np.testing.assert_array_equal(got[[0, 2, 4]], plain[[0, 2, 4]])
