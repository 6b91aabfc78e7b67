"""Sampling at positions of grids and regions: as numpy's kernels, to a hundred-thousandth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.native import Library, NativeFailure
from tests.native.bindings import native_results, numpy_results, steady_results

__all__ = ["SAMPLED"]

SAMPLED: Final = frozenset({"DeformConv", "GridSample", "MaxRoiPool", "RoiAlign"})


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@np.errstate(all="ignore")
def _check(
    library: Library,
    opcode: str,
    inputs: Sequence[Array | None],
    shape: tuple[int, ...],
    attributes: Mapping[str, Any],
) -> None:
    out = np.empty(shape, np.float32)
    expected = numpy_results(opcode, inputs, [out], attributes)
    (got,) = steady_results(library, opcode, inputs, [out], attributes)
    np.testing.assert_allclose(got, expected[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("sizes", [(9,), (7, 5), (1, 6), (4, 3, 5)])
def test_grids(
    library: Library, sizes: tuple[int, ...], mode: str, padding: str, align: int
) -> None:
    outs = (13, 11, 2)[: len(sizes)]
    grid = _numbers(2, *outs, len(sizes), seed=1) * 1.5
    # Which element is nearest to what is not a number is not defined.
    grid.reshape(-1)[:6] = (-1, 1, 0, 0.5 if mode == "nearest" else np.nan, 30, -1e9)
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": align}
    x = _numbers(2, 3, *sizes)
    for given in (x, np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)):
        _check(library, "GridSample", [given, grid], (2, 3, *outs), attributes)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_many_small_images(library: Library, mode: str) -> None:
    """A chunk ends between images; blocks of 64 positions do not fill them."""
    attributes = {"mode": mode, "padding_mode": "zeros", "align_corners": 1}
    grid = _numbers(300, 5, 13, 2, seed=1)
    _check(library, "GridSample", [_numbers(300, 1, 8, 7), grid], (300, 1, 5, 13), attributes)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grids_of_halves(library: Library, mode: str) -> None:
    """Rounded once, as numpy does."""
    attributes = {"mode": mode, "padding_mode": "zeros", "align_corners": 0}
    x, grid = (_numbers(*shape).astype(np.float16) for shape in ((2, 3, 7, 5), (2, 4, 6, 2)))
    out = np.empty((2, 3, 4, 6), np.float16)
    (expected,) = numpy_results("GridSample", [x, grid], [out], attributes)
    found = native_results(library, "GridSample", [x, grid], [out], attributes)
    assert found is not None
    np.testing.assert_allclose(found[0], expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
def test_nearest_elements_of_pixels(library: Library, dtype: type[np.generic]) -> None:
    """Channels of a pixel side by side, before and behind; elements only move."""
    x = (9 * _numbers(2, 4, 5, 3)).astype(dtype).transpose(0, 3, 1, 2)
    out = np.empty((2, 8, 10, 3), dtype).transpose(0, 3, 1, 2)
    attributes = {
        "mode": "nearest",
        "nearest_mode": "floor",
        "coordinate_transformation_mode": "asymmetric",
        "scales": (1.0, 1.0, 2.0, 2.0),
    }
    found = native_results(library, "Resize", [x], [out], attributes)
    assert found is not None
    np.testing.assert_array_equal(found[0], x.repeat(2, axis=2).repeat(2, axis=3))


def test_maxima_of_halves(library: Library) -> None:
    regions = np.array([[0, 1, 2, 9, 7], [1, 0, 0, 3, 3], [0, 5, 5, 5, 5]], np.float16)
    x, out = _numbers(2, 3, 8, 8).astype(np.float16), np.empty((3, 3, 2, 2), np.float16)
    attributes = {"spatial_scale": 1.0}
    (expected,) = numpy_results("MaxRoiPool", [x, regions], [out], attributes)
    found = native_results(library, "MaxRoiPool", [x, regions], [out], attributes)
    assert found is not None
    np.testing.assert_array_equal(found[0], expected)


@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions(library: Library, mode: str, ratio: int, transformation: str) -> None:
    random = np.random.default_rng(3)
    corners = random.uniform(-8, 40, (30, 2, 2)).astype(np.float32)
    corners.sort(axis=1)
    regions = corners.reshape(30, 4)
    regions[:5] = [(3, 3, 3, 3), (9, 9, 2, 2), (-9e8, -5, 9e8, 5), (0, 0, 31, 35), (50, 50, 60, 60)]
    regions[5, 2] = np.inf
    regions[6, 1] = np.nan
    attributes = {
        "mode": mode,
        "sampling_ratio": ratio,
        "spatial_scale": 0.5,
        "coordinate_transformation_mode": transformation,
    }
    x, images = _numbers(3, 4, 18, 16), random.integers(0, 3, 30)
    _check(library, "RoiAlign", [x, regions, images], (30, 4, 5, 3), attributes)
    out = np.empty((30, 4, 5, 3), np.float32)
    with pytest.raises(NativeFailure, match="out of range"):
        native_results(library, "RoiAlign", [x, regions, images + 1], [out], attributes)


def test_maxima_of_regions(library: Library) -> None:
    random = np.random.default_rng(3)
    corners = random.uniform(-8, 40, (30, 2, 2)).astype(np.float32)
    corners.sort(axis=1)
    images = random.integers(0, 3, (30, 1)).astype(np.float32)
    regions = np.concatenate([images, corners.reshape(30, 4)], axis=1)
    regions[:3, 1:] = [(3, 3, 3, 3), (9, 9, 2, 2), (-9e8, -5, 9e8, 5)]
    x = _numbers(3, 4, 18, 16)
    x[0, 1, 5, 5] = np.nan
    _check(library, "MaxRoiPool", [x, regions], (30, 4, 5, 3), {"spatial_scale": 0.5})
    out = np.empty((30, 4, 5, 3), np.float32)
    with pytest.raises(NativeFailure, match="out of range"):
        native_results(library, "MaxRoiPool", [x, regions + 3], [out], {"spatial_scale": 0.5})


_DEFORMED: Final[list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]]] = [
    ((2, 6, 9, 11), (5, 6, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 4, 8, 40), (6, 2, 2, 3), {"group": 2, "offset_group": 2, "strides": (2, 1)}),
    ((3, 4, 13, 9), (2, 1, 3, 2), {"group": 2, "dilations": (2, 1), "pads": (0, 1, 2, 1)}),
    ((1, 3, 1, 1), (9, 3, 1, 1), {"offset_group": 3}),
    ((2, 2, 5, 5), (1, 2, 5, 5), {}),
]


@pytest.mark.parametrize("with_mask", [False, True])
@pytest.mark.parametrize(("x", "w", "attributes"), _DEFORMED)
def test_deformable_convolutions(
    library: Library,
    x: tuple[int, ...],
    w: tuple[int, ...],
    attributes: dict[str, Any],
    *,
    with_mask: bool,
) -> None:
    """Positions far outside and such as are no number count nothing; operands lie anyhow."""
    pads, strides = attributes.get("pads", (0,) * 4), attributes.get("strides", (1, 1))
    dilations = attributes.get("dilations", (1, 1))
    size = tuple(
        (x[i + 2] + pads[i] + pads[i + 2] - (w[i + 2] - 1) * dilations[i] - 1) // strides[i] + 1
        for i in range(2)
    )
    attributes = {"kernel_shape": w[2:], **attributes, "strides": strides, "pads": pads}
    attributes["dilations"] = dilations
    count = attributes.get("offset_group", 1) * w[2] * w[3]
    w = (w[0], x[1] // attributes.get("group", 1), *w[2:])
    offsets = 3 * _numbers(x[0], 2 * count, *size, seed=2)
    offsets.reshape(-1)[:5] = (np.nan, 1e30, -np.inf, 0, -1)
    mask = _numbers(x[0], count, *size, seed=3) if with_mask else None
    bias = None if with_mask else _numbers(w[0], seed=4)
    given = [_numbers(*x), _numbers(*w, seed=1), offsets, bias, mask]
    turned = [None if array is None else np.asfortranarray(array) for array in given]
    shape = (x[0], w[0], *size)
    for inputs in (given, turned, [_numbers(*x[:3], 2 * x[3])[..., ::2], *given[1:]]):
        _check(library, "DeformConv", inputs, shape, attributes)
