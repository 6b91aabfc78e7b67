"""Bytes by a scale that their own range decides, beside numpy's kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.native import find_library
from popc_runtime.native.library import variants
from tests.native.bindings import native_results, numpy_results

_INTEGERS = (np.int8, np.uint8, np.int16, np.uint16)


def _both(
    opcode: str,
    inputs: Sequence[Array | None],
    dtype: type[np.generic],
    attributes: Mapping[str, Any],
) -> None:
    """Both engines give the same, bit for bit."""
    first = inputs[0]
    assert first is not None
    out = np.empty(first.shape, dtype)
    (expected,) = numpy_results(opcode, inputs, [out], attributes)
    for variant in variants():
        library = find_library(variant)
        assert library is not None
        results = native_results(library, opcode, inputs, [out], attributes)
        assert results is not None
        np.testing.assert_array_equal(results[0], expected)


def _parameters(axis: int | None, dtype: type[np.generic]) -> tuple[Array, Array]:
    """Scales and zero points of a tensor [4, 5, 6], or of the places along one of its axes."""
    random = np.random.default_rng(7)
    shape = () if axis is None else ((4, 5, 6)[axis],)
    scales = np.asarray(random.uniform(0.01, 0.3, shape), np.float32)
    return scales, np.asarray(random.integers(0, 90, shape), dtype)


@np.errstate(all="ignore")
@pytest.mark.parametrize("dtype", _INTEGERS)
@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_scales_are_operands(axis: int | None, dtype: type[np.generic]) -> None:
    """Of all layouts, with and without zero points; what is no number is the lowest integer."""
    x = np.random.default_rng(1).normal(0, 9, (4, 5, 6)).astype(np.float32)
    x[0, 0, :5] = np.nan, np.inf, -np.inf, 1e30, -1e30
    integers = np.random.default_rng(2).integers(0, 127, x.shape).astype(dtype)
    scales, zeros = _parameters(axis, dtype)
    attributes = {} if axis is None else {"axis": axis}
    for layout in (np.ascontiguousarray, np.flipud, np.asfortranarray):
        for zero in (None, zeros):
            _both("QuantizeLinear", [layout(x), scales, zero], dtype, attributes)
            _both("DequantizeLinear", [layout(integers), scales, zero], np.float32, attributes)


@pytest.mark.parametrize("axis", [None, 1])
def test_wide_integers_by_scales_that_are_operands(axis: int | None) -> None:
    x = np.random.default_rng(2).integers(-(2**31), 2**31, (4, 5, 6)).astype(np.int32)
    attributes = {} if axis is None else {"axis": axis}
    _both("DequantizeLinear", [x, _parameters(axis, np.int8)[0], None], np.float32, attributes)


def test_halves_by_scales_that_are_operands() -> None:
    x = np.random.default_rng(1).normal(0, 9, (4, 5, 6)).astype(np.float16)
    scales, zeros = _parameters(1, np.uint8)
    halves = scales.astype(np.float16)
    _both("QuantizeLinear", [x, halves, zeros], np.uint8, {"axis": 1})
    integers = np.abs(x).astype(np.uint8)
    _both("DequantizeLinear", [integers, halves, zeros], np.float16, {"axis": 1})


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("size", [1, 7, 32, 95, 40000])
def test_dynamic_quantize(variant: str, size: int) -> None:
    library = find_library(variant)
    assert library is not None
    x = np.random.default_rng(size).normal(size=size).astype(np.float32)
    outputs: list[Array] = [np.empty(size, np.uint8)]
    outputs += [np.empty((), np.float32), np.empty((), np.uint8)]
    halves = np.arange(-size, size, 2, dtype=np.float32) % 255 / 2  # quotients between two integers
    narrow, wide = x * np.float32(1e-38), x * np.float32(1e30)
    for item in (x, np.abs(x) + 1, -np.abs(x) - 1, 0 * x, narrow, wide, halves):
        expected = numpy_results("DynamicQuantizeLinear", [item], outputs, {})
        for threads in (1, 2):
            results = native_results(
                library, "DynamicQuantizeLinear", [item], outputs, {}, threads=threads
            )
            assert results is not None
            for result, other in zip(results, expected, strict=True):
                np.testing.assert_array_equal(result, other)


def test_dynamic_quantize_in_any_order_of_axes() -> None:
    """As behind a Transpose or a Slice, which are views."""
    library = find_library()
    assert library is not None
    x = np.random.default_rng(0).normal(size=(6, 5, 4)).astype(np.float32)
    for laid in (x.transpose(2, 0, 1), x[:, 1::2], x[::-1, :, 1:3]):
        outputs: list[Array] = [np.empty(laid.shape, np.uint8)]
        outputs += [np.empty((), np.float32), np.empty((), np.uint8)]
        expected = numpy_results("DynamicQuantizeLinear", [laid], outputs, {})
        results = native_results(library, "DynamicQuantizeLinear", [laid], outputs, {})
        assert results is not None
        for result, other in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, other)


@np.errstate(all="ignore")
@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("place", [0, 20, 200, 300, 20000])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_dynamic_quantize_of_special_values(variant: str, place: int, special: float) -> None:
    library = find_library(variant)
    assert library is not None
    x = np.random.default_rng(0).normal(size=20001).astype(np.float32)
    x[place] = special
    outputs: list[Array] = [np.empty(x.shape, np.uint8)]
    outputs += [np.empty((), np.float32), np.empty((), np.uint8)]
    expected = numpy_results("DynamicQuantizeLinear", [x], outputs, {})
    results = native_results(library, "DynamicQuantizeLinear", [x], outputs, {})
    assert results is not None
    for result, other in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, other)
