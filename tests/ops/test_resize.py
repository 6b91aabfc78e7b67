from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.errors import DataDependentShapeError, ModelError
from popc_runtime.format import Array, Attribute
from tests.support.oracles import assert_matches_onnxruntime, run_ir, run_op

_RNG = np.random.default_rng(7)
_NONE = np.zeros(0, np.float32)


def _image(*shape: int, dtype: Any = np.float32) -> Array:
    if np.dtype(dtype).kind in "iu":
        return _RNG.integers(0, 100, shape).astype(dtype)
    return _RNG.standard_normal(shape).astype(dtype)


def _scales(*values: float) -> Array:
    return np.array(values, np.float32)


def _check(
    x: Array, scales: Array | None, sizes: Array | None = None, opset: int = 19, **attributes: Any
) -> None:
    inputs = [x, None, scales, sizes] if sizes is not None else [x, None, scales]
    assert_matches_onnxruntime(
        "Resize", inputs, attributes, opset=opset, constants={2, 3}, rtol=1e-4, atol=1e-5
    )


TRANSFORMATIONS = [
    "align_corners",
    "asymmetric",
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
]


@pytest.mark.parametrize(
    "nearest_mode", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]
)
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("sizes", [(7, 9), (2, 4), (10, 16), (5, 8), (1, 1)])
def test_nearest(transformation: str, nearest_mode: str, sizes: tuple[int, int]) -> None:
    _check(
        _image(2, 3, 5, 8),
        None,
        np.array([2, 3, *sizes], np.int64),
        mode="nearest",
        coordinate_transformation_mode=transformation,
        nearest_mode=nearest_mode,
    )


@pytest.mark.parametrize("nearest_mode", ["round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("sizes", [(7, 8), (10, 12), (15, 16), (26, 32), (27, 30), (33, 7)])
def test_halves_between_elements(
    transformation: str, nearest_mode: str, sizes: tuple[int, int]
) -> None:
    """Their coordinates are whole numbers and a half, which float32 may miss."""
    _check(
        np.arange(sizes[0], dtype=np.float32).reshape(1, 1, 1, -1),
        None,
        np.array([1, 1, 1, sizes[1]], np.int64),
        mode="nearest",
        coordinate_transformation_mode=transformation,
        nearest_mode=nearest_mode,
    )


@pytest.mark.parametrize("nearest_mode", ["floor", "ceil"])
@pytest.mark.parametrize(("length", "scale"), [(5, 1.5), (3, 1.5), (5, 1.75), (7, 1.5), (3, 2.6)])
def test_symmetric_about_an_element(length: int, scale: float, nearest_mode: str) -> None:
    """Its coordinate is a whole number: no rounding may lead to a neighbour."""
    _check(
        np.arange(length, dtype=np.float32).reshape(1, 1, 1, length),
        np.array([1, 1, 1, scale], np.float32),
        mode="nearest",
        coordinate_transformation_mode="half_pixel_symmetric",
        nearest_mode=nearest_mode,
    )


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("sizes", [(7, 9), (3, 4), (10, 16), (1, 40), (100, 3)])
def test_interpolation(transformation: str, mode: str, sizes: tuple[int, int]) -> None:
    _check(
        _image(2, 3, 5, 8),
        None,
        np.array([2, 3, *sizes], np.int64),
        mode=mode,
        coordinate_transformation_mode=transformation,
    )


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("scales", [(1.5, 1.3), (0.7, 0.3), (2.5, 0.4), (0.2, 0.13)])
def test_scales_that_do_not_divide_evenly(
    transformation: str, mode: str, scales: tuple[float, float]
) -> None:
    """In PyTorch's exports too, where ``align_corners`` lets the last elements meet."""
    _check(
        _image(2, 3, 5, 8),
        np.array([1, 1, *scales], np.float32),
        mode=mode,
        coordinate_transformation_mode=transformation,
    )


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude_outside", [0, 1])
@pytest.mark.parametrize("scales", [(0.3, 0.6), (0.5, 1.7), (2.0, 0.25)])
def test_antialias(mode: str, exclude_outside: int, scales: tuple[float, float]) -> None:
    _check(
        _image(1, 2, 12, 17),
        _scales(1, 1, *scales),
        mode=mode,
        antialias=1,
        exclude_outside=exclude_outside,
    )


@pytest.mark.parametrize("coefficient", [-0.5, -0.75])
@pytest.mark.parametrize("exclude_outside", [0, 1])
def test_cubic_options(coefficient: float, exclude_outside: int) -> None:
    _check(
        _image(1, 2, 6, 7),
        _scales(1, 1, 1.8, 0.8),
        mode="cubic",
        cubic_coeff_a=coefficient,
        exclude_outside=exclude_outside,
    )


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "roi", [(0.2, 0.1, 0.9, 0.7), (-0.3, 0.4, 1.4, 0.6), (0.95, 0.0, 0.1, 1.2)]
)
@pytest.mark.parametrize("sizes", [(4, 9), (1, 6)])
def test_crop_and_resize(
    mode: str, roi: tuple[float, float, float, float], sizes: tuple[int, int]
) -> None:
    region = np.array([0, 0, *roi[:2], 1, 1, *roi[2:]], np.float32)
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 7.5,
    }
    assert_matches_onnxruntime(
        "Resize",
        [_image(1, 2, 6, 8), region, None, np.array([1, 2, *sizes], np.int64)],
        attributes,
        constants={1, 3},
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller", "stretch"])
@pytest.mark.parametrize("sizes", [(9, 9), (3, 20), (7, 2)])
@pytest.mark.parametrize("axes", [(2, 3), (3, 2)])
def test_axes_and_policy(policy: str, sizes: tuple[int, int], axes: tuple[int, int]) -> None:
    _check(
        _image(1, 2, 5, 8),
        None,
        np.array(sizes, np.int64),
        mode="linear",
        axes=axes,
        keep_aspect_ratio_policy=policy,
    )


def test_negative_axes() -> None:
    x, sizes = _image(1, 2, 5, 8), np.array([9, 4], np.int64)
    inputs = [x, None, None, sizes]
    (y,) = run_op("Resize", inputs, {"mode": "linear", "axes": (2, -1)}, constants={3})
    (wanted,) = run_op("Resize", inputs, {"mode": "linear", "axes": (2, 3)}, constants={3})
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 2), (1, 1, 0.6, 0.6), (1, 1, 3, 0.5), (1, 1, 1.5, 1)])
def test_opset_10(mode: str, scales: tuple[float, ...]) -> None:
    assert_matches_onnxruntime(
        "Resize", [_image(1, 2, 5, 6), _scales(*scales)], {"mode": mode}, opset=10, constants={1}
    )


@pytest.mark.parametrize("opset", [11, 12, 13, 18])
def test_opsets_with_empty_scales(opset: int) -> None:
    x, sizes = _image(1, 2, 5, 6), np.array([1, 2, 10, 9], np.int64)
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    assert_matches_onnxruntime(
        "Resize", [x, _NONE, _NONE, sizes], attributes, opset=opset, constants={1, 2, 3}
    )


def test_tf_half_pixel_for_nn() -> None:
    attributes = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    assert_matches_onnxruntime(
        "Resize",
        [_image(1, 1, 5, 6), _NONE, _scales(1, 1, 2, 0.5)],
        attributes,
        opset=11,
        constants={1, 2},
    )


def test_sizes_without_scales_before_they_were_optional() -> None:
    """The name of the scales is empty, as PopART's builder writes it."""
    x, roi, sizes = _image(1, 2, 3, 4), np.zeros([0], np.float32), np.array([1, 2, 6, 8])
    attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    (y,) = run_op("Resize", [x, roi, None, sizes], attributes, constants={1, 3}, opset=11)
    np.testing.assert_array_equal(y, x.repeat(2, 2).repeat(2, 3))


@pytest.mark.parametrize("opset", [7, 9])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample(opset: int, mode: str) -> None:
    x, scales = _image(1, 3, 4, 5), (1.0, 1.0, 2.0, 3.0)
    inputs = [x] if opset == 7 else [x, _scales(*scales)]
    attributes = {"mode": mode} | ({"scales": scales} if opset == 7 else {})
    assert_matches_onnxruntime("Upsample", inputs, attributes, opset=opset, constants={1})


def test_upsample_1_takes_scales_by_axis() -> None:
    x = _image(1, 1, 2, 3)
    attributes = {"height_scale": 2.0, "width_scale": 3.0, "mode": "nearest"}
    (y,) = run_op("Upsample", [x], attributes, opset=1)
    np.testing.assert_array_equal(y, x.repeat(2, axis=2).repeat(3, axis=3))


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int8, np.uint8, np.float16, np.int32, np.int64, np.float64]
)
@pytest.mark.parametrize("factors", [(1, 2), (2, 1), (2, 2), (3, 4), (1, 1)])
def test_nearest_copies_any_type(dtype: Any, factors: tuple[int, int]) -> None:
    x = _image(2, 3, 4, 5, dtype=dtype)
    (y,) = run_op("Resize", [x, None, _scales(1, 1, *factors)], constants={2}, opset=19)
    np.testing.assert_array_equal(y, x.repeat(factors[0], axis=2).repeat(factors[1], axis=3))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.uint8, np.int64])
def test_linear_types(dtype: Any) -> None:
    x = _image(1, 2, 4, 6, dtype=dtype)
    (y,) = run_op("Resize", [x, None, _scales(1, 1, 1.5, 0.75)], {"mode": "linear"}, constants={2})
    (exact,) = run_op(
        "Resize", [x.astype(np.float64), None, _scales(1, 1, 1.5, 0.75)], {"mode": "linear"},
        constants={2},
    )  # fmt: skip
    assert y.dtype == dtype
    if np.dtype(dtype).kind == "f":
        np.testing.assert_allclose(y, exact, rtol=2e-3 if dtype == np.float16 else 1e-6, atol=1e-3)
    else:
        assert np.abs(y - exact).max() < 0.5001


def test_integers_saturate() -> None:
    x = np.array([0, 0, 255, 255, 0, 0], np.uint8)
    (y,) = run_op("Resize", [x, None, _scales(3)], {"mode": "cubic"}, constants={2})
    assert (y.min(), y.max()) == (0, 255)
    assert y.dtype == np.uint8


@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    data=st.data(),
    mode=st.sampled_from(["nearest", "linear", "cubic"]),
)
@settings(max_examples=60, deadline=None)
def test_strides_do_not_matter(shape: list[int], data: st.DataObject, mode: str) -> None:
    resized = tuple(data.draw(st.integers(0, 12)) for _ in shape)
    x = _image(*(2 * dim for dim in shape))[tuple(slice(None, None, 2) for _ in shape)]
    attributes: dict[str, Attribute] = {
        "shape": resized,
        "scales": tuple(
            max(after, 1) / before for before, after in zip(shape, resized, strict=True)
        ),
        "mode": mode,
        "coordinate_transformation_mode": "half_pixel",
        "nearest_mode": "round_prefer_floor",
    }
    (strided,) = run_ir("Resize", [x.T.T], attributes)
    (plain,) = run_ir("Resize", [x.copy()], attributes)
    np.testing.assert_array_equal(strided, plain)


def test_channels_last() -> None:
    x = _image(2, 9, 11, 3)
    (y,) = run_op("Resize", [x, None, _scales(1, 2, 3, 1)], {"mode": "linear"}, constants={2})
    (wanted,) = run_op(
        "Resize",
        [x.transpose(0, 3, 1, 2).copy(), None, _scales(1, 1, 2, 3)],
        {"mode": "linear"},
        constants={2},
    )
    np.testing.assert_allclose(y, wanted.transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-6)


def test_unchanged_size_emits_nothing() -> None:
    x = _image(1, 1, 3, 3)
    (y,) = run_op("Resize", [x, None, _scales(1, 1, 1, 1)], {"mode": "cubic"}, constants={2})
    assert y is x


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ([_image(1, 4), None, _scales(1, 2, 3)], {}, "3 scales for 2 dimensions"),
        ([_image(1, 4), None, _scales(1, -2)], {}, "must be positive"),
        ([_image(1, 4), None, _scales(1, 2)], {"mode": "quintic"}, "expected one of"),
        ([_image(1, 4), None, _scales(1, 2)], {"axes": [0, 2]}, "axis 2 is out of range"),
        ([_image(1, 4), None, _scales(1, 2)], {"axes": [1, -1]}, "not distinct"),
        ([_image(1, 4), None, None], {}, "exactly one of"),
        ([_image(1, 0), None, None, np.array([1, 4])], {}, r"cannot resize \[1, 0\]"),
        (
            [_image(1, 4), None, _scales(1, 2)],
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            "needs a 'roi'",
        ),
        (
            [np.ones((1, 4), np.bool_), None, _scales(1, 2)],
            {"mode": "linear"},
            "cannot interpolate bool",
        ),
        (
            [_image(1, 4), None, None, np.array([1, 8])],
            {"keep_aspect_ratio_policy": "fit"},
            "unknown keep_aspect_ratio_policy 'fit'",
        ),
    ],
)
def test_wrong_sizes_modes_and_types_are_refused(
    inputs: list[Array | None], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        run_op("Resize", inputs, attributes, constants={1, 2, 3})


def test_scales_must_be_known() -> None:
    with pytest.raises(DataDependentShapeError, match="nothing bounds the size of its result"):
        run_op("Resize", [_image(1, 4), None, _scales(1, 2)])
