"""Axes of few elements, or with few lines side by side: kernels put these into panels.

Sizes stand around the widths of vectors and squares, of panels, and of what is read where it lies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.native import Library
from tests.native.bindings import steady_results

_SHAPES: Final = (
    *((1, 5, 1), (2, 2, 1), (3, 3, 1), (5, 2, 1), (6, 3, 1), (7, 3, 1), (8, 4, 1), (300, 2, 1)),
    *((301, 3, 1), (130, 4, 1), (131, 5, 1), (127, 7, 1), (129, 8, 1), (65, 31, 1), (40, 32, 1)),
    *((9, 33, 1), (3, 17, 1), (2, 9, 2), (130, 5, 2), (67, 3, 3), (45, 7, 5), (31, 6, 7)),
    *((9, 2, 9), (9, 3, 15), (9, 4, 16), (9, 5, 17), (5, 3, 31), (5, 3, 32), (5, 3, 33)),
    *((4, 300, 2), (3, 700, 3), (2, 5000, 2), (3, 2, 127), (3, 2, 129), (2, 3, 600), (70, 1, 3)),
)
_TYPES: Final = ("float32", "float64", "int8", "uint8", "int16", "int32", "int64")
_FLOATS: Final = ("float32", "float64")
_SPREAD: Final = 3


def _numbers(shape: tuple[int, ...], dtype: str) -> Any:
    numbers = np.random.default_rng(sum(shape)).standard_normal(shape) * _SPREAD
    return np.abs(numbers).astype(dtype) if dtype.startswith("u") else numbers.astype(dtype)


def _spoiled(x: Any) -> Any:
    """With what is undefined or infinite in some lines, and negative zero."""
    places = np.random.default_rng(x.size).integers(0, x.size, 6)
    x.flat[places] = [np.nan, np.inf, -np.inf, -0.0, np.nan, np.inf]
    return x


def _result(
    library: Library, opcode: str, x: Any, shape: tuple[int, ...], dtype: Any, **attributes: Any
) -> Any:
    (got,) = steady_results(library, opcode, [x], [np.empty(shape, dtype)], attributes)
    return got


def _along(x: Any, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))


@pytest.mark.parametrize("dtype", [*_TYPES, "float16"])
@pytest.mark.parametrize(("opcode", "wanted"), [("ReduceMax", np.max), ("ReduceMin", np.min)])
def test_extremes(library: Library, opcode: str, wanted: Callable[..., Any], dtype: str) -> None:
    for shape in _SHAPES:
        x = _numbers(shape, dtype)
        if dtype.startswith("float"):
            _spoiled(x)
        got = _result(library, opcode, x, _along(x, (1,)), dtype, axes=(1,), keepdims=1)
        np.testing.assert_array_equal(got, wanted(x, axis=1, keepdims=True))


def _log_sum_exp(x: Any) -> Any:
    peak = x.max(1, keepdims=True)
    return np.log(np.exp(x - peak).sum(1, keepdims=True)) + peak


# The number, and what errors of a float of 2**-24 are relative to, for each term once.
_REAL: Final[dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "ReduceL1": (lambda x: np.abs(x).sum(1, keepdims=True),) * 2,
    "ReduceL2": (lambda x: np.sqrt((x * x).sum(1, keepdims=True)),) * 2,
    "ReduceMean": (
        lambda x: x.mean(1, keepdims=True),
        lambda x: np.abs(x).mean(1, keepdims=True),
    ),
    "ReduceProd": (
        lambda x: x.prod(1, keepdims=True),
        lambda x: np.abs(x).prod(1, keepdims=True),
    ),
    "ReduceSum": (lambda x: x.sum(1, keepdims=True), lambda x: np.abs(x).sum(1, keepdims=True)),
    "ReduceSumSquare": (lambda x: (x * x).sum(1, keepdims=True),) * 2,
    "ReduceLogSumExp": (_log_sum_exp, lambda x: 2 + np.abs(x).max(1, keepdims=True)),
}


@pytest.mark.parametrize("dtype", _FLOATS)
@pytest.mark.parametrize("opcode", _REAL)
def test_reductions(library: Library, opcode: str, dtype: str) -> None:
    wanted, size = _REAL[opcode]
    for shape in _SHAPES:
        x = _numbers(shape, dtype)
        if opcode == "ReduceProd":
            x = np.sign(x) * 2 ** (x / 9 / max(1, shape[1] / 30))  # of a line within the type
        exact = x.astype(np.float64)
        got = _result(library, opcode, x, _along(x, (1,)), dtype, axes=(1,), keepdims=1)
        unit = 2.0**-53 if dtype == "float64" else 2.0**-24
        bound = 2 * (shape[1] + 4) * unit * size(exact)
        assert (np.abs(got - wanted(exact)) <= bound).all(), shape


@pytest.mark.parametrize("opcode", ["ReduceLogSum", "ReduceLogSumExp", "ReduceL2", "ReduceSum"])
@pytest.mark.parametrize("dtype", _FLOATS)
def test_undefined_lines_stay_so_alone(library: Library, opcode: str, dtype: str) -> None:
    """Lines beside one with NaN or infinities are what they are without it."""
    for shape in _SHAPES:
        x = np.abs(_numbers(shape, dtype)) + 1
        plain = _result(library, opcode, x, _along(x, (1,)), dtype, axes=(1,), keepdims=1)
        spoiled = x.copy()
        spoiled[0, -1, 0], spoiled[-1, 0, -1] = np.inf, np.nan
        got = _result(library, opcode, spoiled, plain.shape, dtype, axes=(1,), keepdims=1)
        assert np.isnan(got[-1, 0, -1])
        if got.size > 1:
            assert got[0, 0, 0] == np.inf
        kept = ~np.isin(np.arange(got.size), (0, got.size - 1))
        np.testing.assert_allclose(got.reshape(-1)[kept], plain.reshape(-1)[kept], rtol=2**-22)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_whole_numbers(library: Library, dtype: str) -> None:
    for shape in _SHAPES:
        x = _numbers(shape, dtype)
        for opcode, wanted in (("ReduceSum", np.sum), ("ReduceProd", np.prod)):
            got = _result(library, opcode, x, _along(x, (1,)), dtype, axes=(1,), keepdims=1)
            np.testing.assert_array_equal(got, wanted(x, axis=1, keepdims=True, dtype=dtype))


def test_two_axes_around_a_kept_one(library: Library) -> None:
    for shape in ((3, 65, 5), (4, 9, 31), (2, 300, 3)):
        x = _numbers(shape, "float32")
        for axes in ((0, 2), (1, 2), (0, 1)):
            exact = np.sqrt((x.astype(np.float64) ** 2).sum(axes, keepdims=True))
            got = _result(library, "ReduceL2", x, _along(x, axes), "float32", axes=axes, keepdims=1)
            np.testing.assert_allclose(got, exact, rtol=2**-22)


@pytest.mark.parametrize("dtype", _TYPES)
def test_places_of_extremes(library: Library, dtype: str) -> None:
    for shape in _SHAPES:
        x = np.round(_numbers(shape, "float64")).clip(0, 3).astype(dtype)  # many are equal
        if dtype.startswith("float"):
            x.flat[:: max(7, x.size // 5)] = np.nan
        for opcode, first in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
            for last in (0, 1):
                wanted = first(x[:, ::-1] if last else x, axis=1)[:, None]
                wanted = shape[1] - 1 - wanted if last else wanted
                got = _result(
                    library, opcode, x, _along(x, (1,)), np.int64, axis=1, select_last_index=last
                )
                np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("opcode", ["CumSum", "CumProd"])
def test_running_sums(library: Library, opcode: str, dtype: str) -> None:
    """Whole numbers, and powers of two, of which no sum or product is rounded."""
    step, none = (np.cumsum, 0) if opcode == "CumSum" else (np.cumprod, 1)
    for shape in _SHAPES:
        x = np.round(_numbers(shape, "float64"))
        if opcode == "CumProd":
            x = np.where(x > 0, -1.0, 1.0)
        x = x.astype(dtype)
        for reverse, exclusive in ((0, 0), (0, 1), (1, 0), (1, 1)):
            wanted = step(x[:, ::-1] if reverse else x, axis=1, dtype=dtype)
            if exclusive:
                wanted = np.concatenate([np.full_like(x[:, :1], none), wanted[:, :-1]], axis=1)
            wanted = wanted[:, ::-1] if reverse else wanted
            got = _result(
                library, opcode, x, shape, dtype, axis=1, reverse=reverse, exclusive=exclusive
            )
            np.testing.assert_array_equal(got, wanted)


def test_softmax(library: Library) -> None:
    """Powers are off by up to 20 units in the last place, sums by as many as they have terms."""
    for shape in _SHAPES:
        x = _numbers(shape, "float32")
        exact = x.astype(np.float64) - x.max(1, keepdims=True)
        logarithm = exact - np.log(np.exp(exact).sum(1, keepdims=True))
        softmax = _result(library, "Softmax", x, shape, "float32", axis=1)
        np.testing.assert_allclose(softmax, np.exp(logarithm), rtol=2**-17, atol=0)
        got = _result(library, "LogSoftmax", x, shape, "float32", axis=1)
        np.testing.assert_allclose(got, logarithm, rtol=0, atol=2**-19 * (1 + np.abs(exact).max()))


@pytest.mark.parametrize("opcode", ["Softmax", "LogSoftmax"])
def test_softmax_of_undefined_lines(library: Library, opcode: str) -> None:
    for shape in _SHAPES:
        x = _numbers(shape, "float32")
        plain = _result(library, opcode, x, shape, "float32", axis=1)
        spoiled = x.copy()
        spoiled[0, :, 0], spoiled[-1, -1, -1] = -np.inf, np.nan
        got = _result(library, opcode, spoiled, shape, "float32", axis=1)
        assert np.isnan(got[0, :, 0]).all()
        assert np.isnan(got[-1, :, -1]).all()
        kept = np.ones(shape, bool)
        kept[0, :, 0] = kept[-1, :, -1] = False
        np.testing.assert_array_equal(got[kept], plain[kept])


@pytest.mark.parametrize("parameters", [(), (1,), (1, 2)])
@pytest.mark.parametrize("opcode", ["LayerNormalization", "RMSNormalization"])
def test_normalized_rows(library: Library, opcode: str, parameters: tuple[int, ...]) -> None:
    for outer, length in ((shape[0], shape[1]) for shape in _SHAPES if shape[2] == 1):
        x = _numbers((outer, length), "float32") + 2
        scale, bias = (_numbers((length,), "float32") + k for k in (1, 2))
        centred = opcode == "LayerNormalization"
        if len(parameters) == 2 and not centred:
            continue
        exact = x.astype(np.float64)
        mean = exact.mean(1, keepdims=True) if centred else 0
        inverse = 1 / np.sqrt(((exact - mean) ** 2).mean(1, keepdims=True) + 1e-2)
        wanted = (exact - mean) * inverse
        given = [scale, bias][: len(parameters)]
        wanted = wanted * scale if given else wanted
        wanted = wanted + bias if len(given) == 2 else wanted
        outputs = [np.empty_like(x), *(np.empty((outer, 1), np.float32) for _ in range(2))]
        attributes = {"axis": 1, "epsilon": 1e-2}
        results = steady_results(
            library, opcode, [x, *given], outputs if centred else outputs[:1], attributes
        )
        # The mean is off by `length` roundings of numbers below 16; the inverse is below 10.
        bound = 2**-24 * (length + 8) * 16 * 10 * (1 + np.abs(scale).max())
        np.testing.assert_allclose(results[0], wanted, rtol=0, atol=bound)
        if centred:
            np.testing.assert_allclose(results[1], mean, rtol=0, atol=2**-24 * length * 16)
            np.testing.assert_allclose(results[2], inverse, rtol=2**-24 * (length + 8) * 16 * 10)
