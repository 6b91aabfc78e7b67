"""Normalisation of channels, softmax along any axis, triangles, and the places of extremes.

Normalisation agrees with numpy to a hundred-thousandth of the largest result, float16 and bfloat16
to one unit in the last place; triangles and Hardmax to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import Array, DType
from popc_runtime.kernels.core.stored import from_bfloat16, to_bfloat16
from popc_runtime.native import Library
from tests.native.bindings import native_results, numpy_results, steady_results

__all__ = ["CHANNELLED"]

CHANNELLED: Final = frozenset(
    {
        *("BatchNormalization", "GroupNormalization", "InstanceNormalization", "LRN"),
        *("Hardmax", "Trilu"),
    }
)
_HALVES: Final = (DType.FLOAT16, DType.BFLOAT16)
_SHAPES: Final = ((2, 6, 5, 7), (1, 12, 1), (3, 6), (2, 6, 40, 33), (1, 6, 2, 3, 4), (0, 6, 4))


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 3 + 1


def _layouts(x: Array) -> list[Array]:
    """Contiguous, channels last, and every other element."""
    last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    return [x, last, wide[..., ::2]]


def _check(
    library: Library,
    opcode: str,
    inputs: Sequence[Array | None],
    attributes: Mapping[str, Any],
    *,
    tolerance: float = 1e-5,
    types: Sequence[DType] | None = None,
    shape: tuple[int, ...] | None = None,
) -> Array:
    """The native result: close to numpy's, and the same for any number of threads."""
    x = inputs[0]
    assert x is not None
    out = np.empty(x.shape if shape is None else shape, x.dtype)
    expected = numpy_results(opcode, inputs, [out], attributes, dtypes=types)[0]
    (got,) = steady_results(library, opcode, inputs, [out], attributes, dtypes=types)
    one, other = got, expected
    if types is not None and types[-1] is DType.BFLOAT16:
        one, other = from_bfloat16(one), from_bfloat16(other)
    np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * 3)
    return got


def _cases(channels: int, opcode: str) -> tuple[list[Array], dict[str, Any]]:
    """The vectors of an instruction, and its attributes."""
    vectors = [_numbers(channels, seed=1 + i) for i in range(4)]
    if opcode == "BatchNormalization":
        return [*vectors[:3], np.abs(vectors[3])], {"epsilon": 1e-5}
    if opcode == "LRN":
        return [], {"size": 5, "alpha": 0.3, "beta": 0.75, "bias": 1.5}
    groups = {"num_groups": 3} if opcode == "GroupNormalization" else {}
    return vectors[:2], {"epsilon": 1e-5, **groups}


_NORMS: Final = ("BatchNormalization", "GroupNormalization", "InstanceNormalization", "LRN")


@pytest.mark.parametrize("shape", _SHAPES[:-1])
@pytest.mark.parametrize("opcode", _NORMS)
def test_normalisation_of_channels(library: Library, opcode: str, shape: tuple[int, ...]) -> None:
    vectors, attributes = _cases(shape[1], opcode)
    for x in _layouts(_numbers(*shape)):
        _check(library, opcode, [x, *vectors], attributes)


@pytest.mark.parametrize("opcode", _NORMS)
def test_nothing_to_normalise_is_left_to_numpy(library: Library, opcode: str) -> None:
    vectors, attributes = _cases(6, opcode)
    x = _numbers(*_SHAPES[-1])
    assert native_results(library, opcode, [x, *vectors], [x], attributes) is None


@pytest.mark.parametrize("dtype", _HALVES)
@pytest.mark.parametrize("opcode", _NORMS)
def test_normalisation_of_halves(library: Library, opcode: str, dtype: DType) -> None:
    vectors, attributes = _cases(6, opcode)
    stored = [_stored(vector, dtype) for vector in (_numbers(2, 6, 5, 7), *vectors)]
    unit = 2.0**-10 if dtype is DType.FLOAT16 else 2.0**-7
    types = [dtype] * (len(stored) + 1)
    _check(library, opcode, stored, attributes, tolerance=unit, types=types)


def _stored(values: Array, dtype: DType) -> Array:
    return to_bfloat16(values) if dtype is DType.BFLOAT16 else values.astype(np.float16)


def test_large_means_cost_no_accuracy(library: Library) -> None:
    x = _numbers(2, 4, 50, 60) + 3000
    vectors = [np.ones(4, np.float32), np.zeros(4, np.float32)]
    got = _check(library, "InstanceNormalization", [x, *vectors], {"epsilon": 1e-5}, tolerance=1e-3)
    wide = x.astype(np.float64)
    exact = (wide - wide.mean((2, 3), keepdims=True)) / wide.std((2, 3), keepdims=True)
    np.testing.assert_allclose(got, exact, atol=2e-4)


@pytest.mark.parametrize("size", [1, 2, 4, 5, 11])
@pytest.mark.parametrize("beta", [0.75, 0.5, 1.3])
def test_neighbouring_channels(library: Library, size: int, beta: float) -> None:
    attributes = {"size": size, "alpha": 0.3, "beta": beta, "bias": 1.5}
    _check(library, "LRN", [_numbers(2, 5, 19, 31)], attributes)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("shape", [(2, 3, 5), (3, 21, 700), (1, 1000, 3), (4, 1, 130)])
@pytest.mark.parametrize("opcode", ["Softmax", "LogSoftmax"])
def test_softmax_along_any_axis(
    library: Library, opcode: str, shape: tuple[int, ...], axis: int
) -> None:
    axis = axis % len(shape)
    for x in _layouts(_numbers(*shape) * 8):
        _check(library, opcode, [x], {"axis": axis})


@np.errstate(all="ignore")
def test_softmax_of_special_values(library: Library) -> None:
    x = _numbers(2, 4, 9)
    x[0, 1, 2], x[0, :, 3], x[1, 2, 4], x[1, 0, 5] = np.nan, -np.inf, np.inf, -np.inf
    for opcode in ("Softmax", "LogSoftmax"):
        for axis in (1, 2):
            _check(library, opcode, [x], {"axis": axis})


@np.errstate(all="ignore")
@pytest.mark.parametrize("opcode", ["Softmax", "LogSoftmax", "ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("length", [1, 5, 16, 31, 67, 128])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_rows_with_one_special_value(
    library: Library, opcode: str, length: int, special: float
) -> None:
    x = np.repeat(_numbers(1, length), length + 2, axis=0)
    np.fill_diagonal(x, special)
    x[-1] = special
    if opcode.startswith("Reduce"):
        _check(library, opcode, [x], {"axes": (1,), "keepdims": 1}, shape=(len(x), 1))
    else:
        _check(library, opcode, [x], {"axis": 1})


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool"])
@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("shape", [(5, 5), (2, 3, 7), (4, 2, 9, 4), (300, 301)])
def test_triangles(library: Library, shape: tuple[int, ...], upper: int, dtype: str) -> None:
    x = (_numbers(*shape) * 20).astype(dtype)
    for diagonal in (None, -400, -2, 0, 1, 5, 2**62, -(2**62)):
        number = None if diagonal is None else np.array(diagonal, np.int64)
        for given in _layouts(x):
            _check(library, "Trilu", [given, number], {"upper": upper}, tolerance=0)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_hardmax(library: Library, axis: int, dtype: str) -> None:
    x = np.round(_numbers(4, 5, 6)).astype(dtype)
    x[1, 2, 3] = x[0, 0, 0] = np.nan
    for given in _layouts(x):
        _check(library, "Hardmax", [given], {"axis": axis}, tolerance=0)
