"""Calls of numpy's functions that the native library does are those of numpy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.native import Library, NativeProgram, find_library, translate
from popc_runtime.native.library import variants


def _run(library: Library, call: partial[Any]) -> None:
    record = translate(call, library.numbers)
    assert record is not None
    NativeProgram(library, [record], call, 2).run()


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (66, 300, 33), (130, 17, 64)])
def test_products_of_doubles(variant: str, shape: tuple[int, int, int]) -> None:
    """Of matrices of any strides, of rows, and batches that are repeated."""
    library = find_library(variant)
    assert library is not None
    m, k, n = shape
    random = np.random.default_rng(0)
    left, right = random.standard_normal((2, 3, k, m)), random.standard_normal((3, k, n))
    out = np.empty((2, 3, n, m)).swapaxes(-1, -2)
    _run(library, partial(np.matmul, left.swapaxes(-1, -2), right, out=out))
    np.testing.assert_allclose(out, left.swapaxes(-1, -2) @ right, rtol=1e-13, atol=1e-12)
    row = np.empty((3, k))
    _run(library, partial(np.vecdot, right, right, out=row))
    np.testing.assert_allclose(row, np.vecdot(right, right), rtol=1e-13)
    column = np.empty(n)
    _run(library, partial(np.dot, right[0].T, left[0, 0, :, 0], out=column))
    np.testing.assert_allclose(column, right[0].T @ left[0, 0, :, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("function", "operands", "keywords", "dtype"),
    [
        (np.bitwise_xor, (np.int32(-5), np.int32(9)), {}, np.int32),
        (np.negative, (np.int8(-1),), {"dtype": np.int32}, np.int32),
        (np.multiply, (np.float64(3), True), {"dtype": np.float64}, np.float64),
        (np.greater, (np.float32(3), np.float32(2)), {"casting": "unsafe"}, np.float32),
        (np.add, (np.uint8(200), np.uint8(100)), {}, np.uint8),
        (np.maximum, (np.float64(np.nan), np.float64(1)), {}, np.float64),
        (np.power, (np.float32(2), np.float32(0.5)), {}, np.float32),
    ],
)
def test_types_of_numpys_functions(
    library: Library,
    function: np.ufunc,
    operands: tuple[Any, ...],
    keywords: dict[str, Any],
    dtype: type,
) -> None:
    arrays = [np.full((3, 9), operand) for operand in operands]
    out: Array = np.empty((3, 9), dtype)
    wanted = np.empty_like(out)
    function(*arrays, out=wanted, **keywords)
    _run(library, partial(function, *arrays, out=out, **keywords))
    np.testing.assert_array_equal(out, wanted)


def test_functions_of_truth_values_that_no_map_does(library: Library) -> None:
    """The sum of two is whether one of them is true, not a number."""
    one = np.ones(4, np.bool_)
    assert translate(partial(np.add, one, one, out=one), library.numbers) is None


def test_reductions_and_limits_are_translated(library: Library) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    out = np.empty((3, 1, 1))
    _run(library, partial(np.add.reduce, x, axis=(1, 2), out=out, keepdims=True))
    np.testing.assert_allclose(out, x.sum((1, 2), keepdims=True), rtol=1e-14)
    largest = np.empty((3, 1, 5))
    _run(library, partial(np.maximum.reduce, x, 1, None, largest, keepdims=True))
    np.testing.assert_array_equal(largest, x.max(1, keepdims=True))
    clipped = np.empty_like(x)
    _run(library, partial(x.clip, -0.5, 0.25, clipped))
    np.testing.assert_array_equal(clipped, x.clip(-0.5, 0.25))
