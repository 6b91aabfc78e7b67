"""Bytes by a scale that their own range decides, beside numpy's kernel."""

from __future__ import annotations

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.native import find_library
from popc_runtime.native.library import variants
from tests.native.bindings import native_results, numpy_results


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
