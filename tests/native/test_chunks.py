"""Work is divided for the threads that there are; results have the same bits for any number."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.kernels.parts.common_left import CommonLeft, common_left
from popc_runtime.native import Library, NativeProgram, find_library
from popc_runtime.native.library import variants
from popc_runtime.native.translation import translate
from tests.native.bindings import steady_results

_MOST: Final = 16  # threads

# X, W and attributes, with enough products that sixteen threads want chunks of their own.
_CONVOLUTIONS: Final[dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]]] = {
    "single pixels": ((1, 130, 7, 7), (300, 130, 1, 1), {}),
    "slices of long windows": ((1, 260, 6, 6), (130, 260, 3, 3), {"winograd": 0}),
    "windows of planes": ((1, 40, 29, 31), (70, 40, 3, 3), {"strides": (2, 2)}),
    "short windows of long lines": ((1, 1, 9000), (100, 1, 10), {"strides": (5,)}),
    "groups": ((2, 64, 13, 13), (96, 32, 3, 3), {"group": 2}),
    "winograd": ((1, 96, 12, 12), (200, 96, 3, 3), {}),
    "depthwise": ((1, 20, 40, 13), (20, 1, 5, 5), {"group": 20, "dilations": (2, 2)}),
    "whole images": ((3, 70, 6, 6), (70, 1, 6, 6), {"group": 70}),
}


@pytest.fixture(params=variants())
def library(request: pytest.FixtureRequest) -> Library:
    """Each form of the kernels that this processor has."""
    found = find_library(request.param)
    assert found is not None
    return found


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def _attributes(rank: int, given: dict[str, Any]) -> dict[str, Any]:
    ones = (1,) * rank
    return {"strides": ones, "dilations": ones, "pads": (0,) * 2 * rank, "group": 1, **given}


def _lengths(x: tuple[int, ...], w: tuple[int, ...], named: dict[str, Any]) -> list[int]:
    axes = zip(x[2:], w[2:], named["strides"], named["dilations"], strict=True)
    return [(n - (k - 1) * dilation - 1) // stride + 1 for n, k, stride, dilation in axes]


@pytest.mark.parametrize("name", _CONVOLUTIONS)
def test_convolutions(library: Library, name: str) -> None:
    x, w, given = _CONVOLUTIONS[name]
    named = _attributes(len(x) - 2, given)
    out = np.empty((x[0], w[0], *_lengths(x, w, named)), np.float32)
    inputs = [_numbers(*x), _numbers(*w, seed=1), _numbers(w[0], seed=2)]
    (found,) = steady_results(library, "Conv", inputs, [out], named, (1, 2), most_threads=_MOST)
    # The sum of all results is that of all products.
    expected = _sum_of_results(inputs, named, out.shape)
    bound = prod(w[1:]) * prod(out.shape) * float(np.finfo(np.float32).eps)
    assert abs(float(found.sum(dtype=np.float64)) - expected) <= 32 * bound


def _sum_of_results(inputs: list[Array], named: dict[str, Any], shape: tuple[int, ...]) -> float:
    x, w, bias = (array.astype(np.float64) for array in inputs)
    group, total = named["group"], float(bias.sum()) * shape[0] * prod(shape[2:])
    for tap in np.ndindex(*w.shape[2:]):
        axes = zip(tap, named["dilations"], named["strides"], shape[2:], strict=True)
        window = tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, s, n in axes)
        seen = x[(slice(None), slice(None), *window)].reshape(*x.shape[:2], -1).sum(axis=(0, 2))
        weights = w[(..., *tap)].reshape(group, -1, w.shape[1]).sum(axis=1)
        total += float((seen.reshape(group, -1) * weights).sum())
    return total


@pytest.mark.parametrize(("stride", "size"), [(2, 9), (1, 12), (4, 5)])
def test_transposed_convolutions(library: Library, stride: int, size: int) -> None:
    x, w = _numbers(1, 100, size, size), _numbers(100, 70, 4, 4, seed=1)
    out = np.empty((1, 70, *((size - 1) * stride + 4,) * 2), np.float32)
    named = _attributes(2, {"strides": (stride, stride)})
    steady_results(library, "ConvTranspose", [x, w], [out], named, (1,), most_threads=_MOST)


@pytest.mark.parametrize("m", [1, 5, 50, 600])
def test_products(library: Library, m: int) -> None:
    left, right = _numbers(m, 300), _numbers(300, 330, seed=1)
    for constant in ((), (1,)):
        (found,) = steady_results(
            library, "MatMul", [left, right], [np.empty((m, 330), np.float32)], {}, constant,
            most_threads=_MOST,
        )  # fmt: skip
        expected = left.astype(np.float64) @ right
        np.testing.assert_allclose(found, expected, rtol=0, atol=300 * 32 * 2.0**-23)


def test_products_of_bytes(library: Library) -> None:
    random = np.random.default_rng(0)
    left = random.integers(0, 256, (50, 300), dtype=np.uint8)
    right = random.integers(-127, 128, (300, 700), dtype=np.int8)
    out = np.empty((50, 700), np.int32)
    (found,) = steady_results(
        library, "MatMulInteger", [left, right, None, None], [out], {"dtype": "int32"}, (1,),
        most_threads=_MOST,
    )  # fmt: skip
    np.testing.assert_array_equal(found, left.astype(np.int64) @ right)


def test_products_with_a_matrix_of_few_bits(library: Library) -> None:
    random = np.random.default_rng(0)
    numbers = random.integers(0, 256, (330, 10, 16), dtype=np.uint8)
    inputs = [_numbers(70, 320), numbers, _numbers(330, 10, seed=1), None, None, None]
    out, named = np.empty((70, 330), np.float32), {"bits": 4, "block_size": 32, "K": 320}
    steady_results(library, "MatMulNBits", inputs, [out], named, (1, 2), most_threads=_MOST)


def test_products_of_one_turned_matrix(library: Library) -> None:
    left, rights = _numbers(500, 300), [_numbers(500, n, seed=n) for n in (64, 33)]
    found = []
    for threads in (1, _MOST):
        outs = [np.empty((300, right.shape[1]), np.float32) for right in rights]
        operands = CommonLeft(left, [*zip(rights, outs, strict=True)])
        record = translate(partial(common_left, (), operands), library.numbers)
        assert record is not None
        NativeProgram(library, [record], operands, threads).run()
        found.append([out.tobytes() for out in outs])
    assert found[0] == found[1]
