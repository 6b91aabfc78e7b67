"""Maps over rows of few elements, which are joined in blocks, against numpy's own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.native import Library
from tests.native.bindings import steady_results

_WIDTHS: Final = (2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)
_TYPES: Final = ("float32", "float64", "float16", "uint8", "int16", "int32", "uint32", "int64")
# Of operands that broadcast to [4, 70, width].
_SHAPES: Final[tuple[Callable[[int], tuple[int, ...]], ...]] = (
    lambda width: (width,),
    lambda width: (70, 1),
    lambda width: (4, 1, width),
    lambda width: (4, 1, 1),
    lambda width: (1, 70, width),
    lambda width: (),
)


def _numbers(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    return np.asarray(np.random.default_rng(seed).integers(1, 9, shape)).astype(dtype)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("width", _WIDTHS)
def test_operands_that_broadcast(library: Library, width: int, dtype: str) -> None:
    left = _numbers((4, 70, width), dtype, 0)
    for shape in _SHAPES:
        right = _numbers(shape(width), dtype, 1)
        for opcode, function in (("Mul", np.multiply), ("Less", np.less), ("Max", np.maximum)):
            wanted = function(left, right)
            out = [np.empty(wanted.shape, wanted.dtype)]
            (got,) = steady_results(library, opcode, [left, right], out, {})
            np.testing.assert_array_equal(got, wanted)
        chosen = _numbers(shape(width), "int64", 2) > 4
        wanted = np.where(chosen, left, right)
        (got,) = steady_results(library, "Where", [chosen, left, right], [np.empty_like(left)], {})
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("width", _WIDTHS)
def test_rows_of_wider_ones(library: Library, width: int, dtype: str) -> None:
    """Operands and results that are parts of rows, every other element, or backwards."""
    left = _numbers((70, 2 * width + 1), dtype, 0)[:, 1 : width + 1]
    right = _numbers((70, 2 * width), dtype, 1)[:, ::2]
    back = _numbers((70, width), dtype, 2)[::-1]
    room = np.zeros((70, width + 3), dtype)
    for operands in ((left, right), (right, back), (back, left)):
        for out in (room[:, 2:-1], np.empty((70, width), dtype)):
            (got,) = steady_results(library, "Sub", list(operands), [out], {})
            np.testing.assert_array_equal(got, np.subtract(*operands))


def test_a_result_in_the_place_of_an_operand(library: Library) -> None:
    for width in _WIDTHS:
        left, right = _numbers((70, width), "float32", 0), _numbers((70, 1), "float32", 1)
        (got,) = steady_results(library, "Div", [left, right], [np.empty_like(left)], {})
        np.testing.assert_array_equal(got, left / right)


@pytest.mark.parametrize("width", _WIDTHS)
def test_functions_of_unusual_numbers(library: Library, width: int) -> None:
    """Powers that the C library computes, beside usual ones."""
    left = np.abs(_numbers((70, width), "float32", 0))
    left[3, 1], left[40, -1], left[69, 0] = np.inf, 0, np.nan
    right = _numbers((width,), "float32", 1)
    with np.errstate(all="ignore"):
        wanted = left.astype(np.float64) ** right
    (got,) = steady_results(library, "Pow", [left, right], [np.empty_like(left)], {})
    np.testing.assert_allclose(got, wanted, rtol=2**-22)


@pytest.mark.parametrize("pixels", [1, 2, 3, 49, 63, 64, 65])
@pytest.mark.parametrize(("images", "channels"), [(2, 5), (3, 16), (4, 1), (5, 7), (300, 16)])
def test_channels_of_few_pixels(library: Library, images: int, channels: int, pixels: int) -> None:
    """Normalised by given statistics; factors are repeated for all pixels of an image."""
    random = np.random.default_rng(pixels)
    x = random.standard_normal((images, channels, pixels)).astype(np.float32)
    scale, bias, mean, variance = (
        random.standard_normal(channels).astype(np.float32) for _ in range(4)
    )
    variance = variance**2 + 1
    wide = [part.astype(np.float64)[:, None] for part in (scale, bias, mean, variance)]
    wanted = (x - wide[2]) / np.sqrt(wide[3] + 1e-5) * wide[0] + wide[1]
    operands = [x, scale, bias, mean, variance]
    attributes = {"epsilon": 1e-5}
    (got,) = steady_results(library, "BatchNormalization", operands, [np.empty_like(x)], attributes)
    # Some roundings of terms below 6 by 4.
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2**-24 * 8 * 24)
