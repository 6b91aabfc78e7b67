from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import (
    assert_matches_onnxruntime,
    one_node_model,
    run_model,
    run_onnxruntime,
    run_op,
)
from tests.support.sized import compare

_RNG = np.random.default_rng(3)


def _normal(*shape: int) -> Array:
    return _RNG.standard_normal(shape).astype(np.float32)


# Inside, partly outside, entirely outside, empty, larger than the map.
_ROIS = np.array(
    [
        [1.2, 2.3, 7.9, 9.1],
        [-5, -4, 3.5, 6.2],
        [30, 30, 44, 50],
        [4, 4, 4, 4],
        [-20, -30, 40, 35],
        [0, 0, 11, 9],
    ],
    np.float32,
)
_BATCHES = np.array([0, 1, 1, 0, 1, 0], np.int64)


@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 1, 2, 3])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_roi_align(mode: str, ratio: int, transformation: str, scale: float) -> None:
    assert_matches_onnxruntime(
        "RoiAlign",
        [_normal(2, 3, 10, 12), _ROIS, _BATCHES],
        {
            "mode": mode,
            "sampling_ratio": ratio,
            "coordinate_transformation_mode": transformation,
            "spatial_scale": scale,
            "output_height": 3,
            "output_width": 4,
        },
        opset=16,
        rtol=1e-4,
        atol=1e-5,
    )


def test_roi_align_before_opset_16() -> None:
    assert_matches_onnxruntime(
        "RoiAlign",
        [_normal(2, 3, 10, 12), _ROIS, _BATCHES],
        {"output_height": 2, "output_width": 2},
        opset=10,
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_types(dtype: Any, mode: str) -> None:
    x = _normal(2, 3, 10, 12)
    attributes = {"mode": mode, "output_height": 2, "output_width": 2, "sampling_ratio": 2}
    (y,) = run_op("RoiAlign", [x.astype(dtype), _ROIS.astype(dtype), _BATCHES], attributes)
    (wanted,) = run_op("RoiAlign", [x, _ROIS, _BATCHES], attributes)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, wanted, rtol=2e-2, atol=5e-2)


def test_hostile_regions_stay_cheap() -> None:
    rois = np.array([[-1e9, -1e9, 1e9, 1e9], [np.nan, 0, np.inf, 5], [5, 5, -5, -5]], np.float32)
    for mode in ("avg", "max"):
        (y,) = run_op(
            "RoiAlign",
            [_normal(1, 2, 6, 6), rois, np.zeros(3, np.int64)],
            {"mode": mode, "output_height": 2, "output_width": 2},
        )
        assert np.isfinite(y).all()


def test_batch_index_is_checked() -> None:
    with pytest.raises(ValueError, match="batch index 2 is out of range for 2 images"):
        run_op("RoiAlign", [_normal(2, 1, 4, 4), _ROIS[:1], np.array([2], np.int64)])


def test_no_regions() -> None:
    (y,) = run_op("RoiAlign", [_normal(2, 1, 4, 4), _ROIS[:0], _BATCHES[:0]], {"output_height": 3})
    assert y.shape == (0, 1, 3, 1)


@pytest.mark.parametrize(
    ("shapes", "attributes", "message"),
    [
        (((1, 2, 3), (1, 4), (1,)), {}, "feature map must have 4 dimensions, not 3"),
        (((1, 2, 3, 4), (1, 5), (1,)), {}, r"regions must have the shape \[R, 4\]"),
        (((1, 2, 3, 4), (2, 4), (1,)), {}, "2 regions need as many batch indices"),
        (((1, 2, 3, 4), (1, 4), (1,)), {"mode": "sum"}, "expected one of avg, max"),
        (((1, 2, 3, 4), (1, 4), (1,)), {"output_width": 0}, "must be positive"),
        (((1, 2, 0, 4), (1, 4), (1,)), {}, "nothing to pool"),
    ],
)
def test_roi_align_refuses_regions_that_do_not_fit(
    shapes: tuple[tuple[int, ...], ...], attributes: dict[str, Any], message: str
) -> None:
    x, rois = (_normal(*shape) for shape in shapes[:2])
    with pytest.raises(ModelError, match=message):
        run_op("RoiAlign", [x, rois, np.zeros(shapes[2], np.int64)], attributes)


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("pooled", [(3, 4), (1, 1), (9, 2)])
def test_max_roi_pool(pooled: tuple[int, int], scale: float) -> None:
    rois = np.concatenate([_BATCHES[:, None], np.abs(_ROIS)], axis=1).astype(np.float32)
    assert_matches_onnxruntime(
        "MaxRoiPool",
        [_normal(2, 3, 10, 12), rois],
        {"pooled_shape": pooled, "spatial_scale": scale},
        opset=1 if pooled == (1, 1) else 8,
    )


def _boxes(batches: int, count: int, *, centred: bool) -> Array:
    low = _RNG.uniform(0, 1, (batches, count, 2))
    size = _RNG.uniform(0.1, 0.5, (batches, count, 2))
    return np.concatenate([low, size if centred else low + size], axis=2).astype(np.float32)


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("limit", [0, 3, 100])
@pytest.mark.parametrize("overlap", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("threshold", [None, 0.4])
def test_non_max_suppression(
    centred: int, limit: int, overlap: float, threshold: float | None
) -> None:
    scores = _RNG.integers(0, 10, (2, 3, 20)).astype(np.float32) / 10
    inputs = [
        _boxes(2, 20, centred=bool(centred)),
        scores,
        np.array([limit], np.int64),
        np.array([overlap], np.float32),
        None if threshold is None else np.array([threshold], np.float32),
    ]
    model = one_node_model(
        "NonMaxSuppression", inputs, {"center_point_box": centred}, opset=11, constants=range(5)
    )
    (y,), (wanted,) = run_model(model, {}), run_onnxruntime(model, {})
    assert y.dtype == np.int64
    np.testing.assert_array_equal(y, wanted)


def test_non_max_suppression_without_a_limit_selects_nothing() -> None:
    (y,) = run_op("NonMaxSuppression", [_boxes(1, 4, centred=False), _normal(1, 2, 4)], opset=10)
    assert y.shape == (0, 3)


def test_flipped_corners_are_the_same_box() -> None:
    boxes = np.array([[[0, 0, 1, 1], [1, 1, 0, 0.1], [5, 5, 6, 6]]], np.float32)
    scores = np.array([[[0.5, 0.6, 0.1]]], np.float32)
    inputs = [boxes, scores, np.array(5), np.array(0.5, np.float32)]
    (y,) = run_op("NonMaxSuppression", inputs, opset=11, constants=range(4))
    assert y.tolist() == [[0, 0, 1], [0, 0, 2]]


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("constants", [{2}, {2, 3}, {0, 2, 3, 4}])
def test_non_max_suppression_at_run_time(constants: set[int], *, centred: bool) -> None:
    boxes, scores = _boxes(2, 12, centred=centred), _normal(2, 3, 12)
    limits = [np.array(number) for number in (5, np.float32(0.4), np.float32(0.1))]
    operands = [boxes, scores, *limits][: 5 if 4 in constants else 4]
    attributes = {"center_point_box": int(centred)}
    model = one_node_model("NonMaxSuppression", operands, attributes, constants=constants)
    given = {f"x{i}": x for i, x in enumerate(operands) if i not in constants}
    compare(model, [given])


@pytest.mark.parametrize(
    ("boxes", "scores"), [((1, 4, 5), (1, 1, 4)), ((4, 4), (1, 1, 4)), ((1, 4, 4), (1, 1, 3))]
)
def test_non_max_suppression_refuses_scores_of_other_boxes(
    boxes: tuple[int, ...], scores: tuple[int, ...]
) -> None:
    with pytest.raises(ModelError, match=r"must be|do not belong together"):
        run_op("NonMaxSuppression", [_normal(*boxes), _normal(*scores)], opset=11)
