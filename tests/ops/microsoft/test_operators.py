"""Fused operators and normalisations of com.microsoft, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import assert_matches_onnxruntime, run_op

Shape = tuple[int, ...]


def _floats(shape: Shape, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _inputs(shapes: list[Shape | None]) -> list[Array | None]:
    return [None if shape is None else _floats(shape, k) for k, shape in enumerate(shapes)]


# -- products, convolutions, activations -----------------------------------------------------------

_FUSED: list[tuple[str, list[Shape | None], dict[str, Any]]] = [
    ("FusedMatMul", [(3, 4), (4, 5)], {"alpha": 0.3}),
    ("FusedMatMul", [(4, 3), (5, 4)], {"transA": 1, "transB": 1}),
    ("FusedMatMul", [(2, 4, 3), (2, 4, 5)], {"transA": 1, "alpha": 2.0}),
    ("FusedMatMul", [(2, 3, 3, 4), (2, 3, 5, 4)], {"transB": 1}),
    ("FusedMatMul", [(3, 2, 4), (4, 2, 5)], {"transBatchA": 1, "transBatchB": 1}),
    ("FusedMatMul", [(4, 2, 6, 3), (2, 6, 4, 5)], {"transBatchA": 1, "transA": 1}),
    ("FusedMatMul", [(4,), (4, 5)], {"transA": 1}),
    ("TransposeMatMul", [(4, 3), (4, 5)], {"transA": 1, "alpha": 0.5}),
    ("FusedGemm", [(3, 4), (4, 5), (5,)], {"activation": "Relu"}),
    ("FusedGemm", [(4, 3), (5, 4), (3, 1)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0,
                                           "activation": "Tanh"}),
    ("FusedGemm", [(3, 4), (4, 5), (5,)], {"activation": "LeakyRelu", "activation_alpha": 0.2}),
    ("FusedGemm", [(3, 4), (4, 5)], {"activation": "Sigmoid"}),
    ("FusedGemm", [(3, 4), (4, 5)], {"activation": "Celu", "activation_alpha": 0.5}),
    ("FusedGemm", [(3, 4), (4, 5)], {"activation": "Elu", "activation_alpha": 0.7}),
    ("FusedGemm", [(3, 4), (4, 5)], {"activation": "Selu", "activation_gamma": 1.5,
                                     "activation_alpha": 1.2}),
    ("FusedGemm", [(3, 4), (4, 5)], {"activation": "Softplus"}),
    ("FusedGemm", [(3, 4), (4, 5)], {"activation": "Softsign"}),
    ("FusedGemm", [(3, 4), (4, 5)], {"activation": "ThresholdedRelu", "activation_alpha": 0.3}),
    ("FusedGemm", [(3, 4), (4, 5)], {"activation": "HardSigmoid", "activation_alpha": 0.1,
                                     "activation_beta": 0.4}),
    ("FusedConv", [(1, 3, 7, 7), (4, 3, 3, 3), (4,)], {"activation": "Relu", "pads": [1, 1, 1, 1]}),
    ("FusedConv", [(1, 4, 7, 7), (4, 2, 3, 3)],
     {"activation": "LeakyRelu", "activation_params": [0.3], "group": 2, "strides": [2, 2]}),
    ("FusedConv", [(1, 3, 7, 7), (4, 3, 3, 3), (4,), (1, 4, 5, 5)], {"activation": "Relu"}),
    ("FusedConv", [(1, 3, 7, 7), (4, 3, 3, 3), (4,)],
     {"activation": "Clip", "activation_params": [-1.0, 0.5]}),
    ("FusedConv", [(1, 3, 7, 7), (4, 3, 3, 3), (4,)],
     {"activation": "HardSigmoid", "activation_params": [0.1, 0.4]}),
    ("Gelu", [(3, 50)], {}),
    ("BiasGelu", [(2, 3, 8), (8,)], {}),
    ("FastGelu", [(2, 3, 8)], {}),
    ("FastGelu", [(2, 3, 8), (8,)], {}),
    ("QuickGelu", [(2, 3, 8)], {}),
    ("QuickGelu", [(2, 3, 8)], {"alpha": 1.3}),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "shapes", "attributes"), _FUSED)
def test_fused(op_type: str, shapes: list[Shape | None], attributes: dict[str, Any]) -> None:
    assert_matches_onnxruntime(
        op_type, _inputs(shapes), attributes, domain="com.microsoft", rtol=1e-4, atol=1e-5
    )


def test_unknown_activation() -> None:
    inputs, attributes = _inputs([(2, 2), (2, 2)]), {"activation": "Mystery"}
    with pytest.raises(ModelError, match="activation 'Mystery' is not supported"):
        run_op("FusedGemm", inputs, attributes, domain="com.microsoft")


# -- normalisation ---------------------------------------------------------------------------------

_ROW = (8,)
_NORMS: list[tuple[str, list[Shape | None], dict[str, Any], int]] = [
    ("SkipLayerNormalization", [(2, 3, 8), (2, 3, 8), _ROW], {}, 1),
    ("SkipLayerNormalization", [(2, 3, 8), (3, 8), _ROW, _ROW], {"epsilon": 1e-3}, 1),
    ("SkipLayerNormalization", [(2, 3, 8), (1, 3, 8), _ROW, _ROW, _ROW], {}, 1),
    ("SkipLayerNormalization", [(6, 8), (6, 8), _ROW, None, _ROW], {}, 1),
    ("SkipSimplifiedLayerNormalization", [(2, 3, 8), (2, 3, 8), _ROW], {}, 1),
    ("SkipSimplifiedLayerNormalization", [(2, 3, 8), (2, 3, 8), _ROW, _ROW], {"epsilon": 1e-2}, 1),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "shapes", "attributes", "outputs"), _NORMS)
def test_skip_normalization(
    op_type: str, shapes: list[Shape | None], attributes: dict[str, Any], outputs: int
) -> None:
    assert_matches_onnxruntime(
        op_type, _inputs(shapes), attributes, domain="com.microsoft", outputs=outputs, atol=1e-5
    )


@pytest.mark.parametrize("simplified", [False, True])
def test_all_outputs_of_skip_normalization(simplified: bool) -> None:  # noqa: FBT001
    x, skip, gamma, bias = (_floats(s, k) for k, s in enumerate([(2, 3, 8), (2, 3, 8), _ROW, _ROW]))
    name = f"Skip{'Simplified' if simplified else ''}LayerNormalization"
    inputs: list[Array | None] = [x, skip, gamma, bias]
    if not simplified:
        inputs.insert(3, None)
    y, mean, inverse, total = run_op(name, inputs, outputs=4, domain="com.microsoft")
    np.testing.assert_allclose(total, x + skip + bias, rtol=1e-6)
    centre = 0 if simplified else total.mean(-1, keepdims=True)
    spread = np.sqrt(((total - centre) ** 2).mean(-1, keepdims=True) + 1e-12)
    np.testing.assert_allclose(y, (total - centre) / spread * gamma, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(inverse, 1 / spread, rtol=1e-5)
    np.testing.assert_allclose(mean, np.zeros((2, 3, 1)) + centre, rtol=1e-5, atol=1e-6)
    assert_matches_onnxruntime(name, inputs, outputs=4, domain="com.microsoft", rtol=1e-4)


@pytest.mark.parametrize("outputs", [1, 2])
def test_simplified_layer_normalization(outputs: int) -> None:
    inputs = _inputs([(2, 3, 8), _ROW])
    assert_matches_onnxruntime(
        "SimplifiedLayerNormalization", inputs, {"axis": -1}, opset=14, outputs=outputs
    )


@pytest.mark.parametrize("outputs", [1, 3])
def test_layer_normalization_before_opset_17(outputs: int) -> None:
    inputs = _inputs([(2, 3, 8), _ROW, _ROW])
    attributes = {"axis": -1, "epsilon": 1e-5}
    assert_matches_onnxruntime(
        "LayerNormalization", inputs, attributes, opset=12, outputs=outputs, atol=1e-5
    )


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("positions", [False, True])
def test_embed_layer_normalization(segments: bool, mask: bool, positions: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(0)
    flags = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.int32)
    inputs: list[Array | None] = [
        rng.integers(0, 9, (2, 4), np.int32),
        rng.integers(0, 2, (2, 4), np.int32) if segments else None,
        _floats((9, 8), 1),
        _floats((6, 8), 2),
        _floats((2, 8), 3) if segments else None,
        _floats(_ROW, 4),
        _floats(_ROW, 5),
        flags if mask else None,
        np.array([[3, 1, 0, 5]], np.int32).repeat(2, 0) if positions else None,
    ]
    attributes = {"epsilon": 1e-6, "mask_index_type": 1}
    assert_matches_onnxruntime(
        "EmbedLayerNormalization",
        inputs,
        attributes,
        domain="com.microsoft",
        outputs=3,
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_group_norm(last: int, activation: int) -> None:
    """onnxruntime has these for other devices only: the formula is the oracle."""
    x, gamma, beta = _floats((2, 6, 3, 4)), _floats((6,), 1), _floats((6,), 2)
    skip, bias = _floats((2, 6, 3, 4), 3), _floats((6,), 4)
    attributes = {"groups": 3, "channels_last": last, "activation": activation, "epsilon": 1e-3}
    given = [a.transpose(0, 2, 3, 1).copy() if last else a for a in (x, skip)]
    column = bias if last else bias[:, None, None]
    names = ("GroupNorm", "SkipGroupNorm")
    operands = ([given[0], gamma, beta], [given[0], gamma, beta, given[1], column])
    for name, inputs, total in zip(
        names, operands, (x, x + skip + bias[:, None, None]), strict=True
    ):
        y = run_op(name, inputs, attributes, domain="com.microsoft")[0]
        grouped = total.reshape(2, 3, -1)
        centred = grouped - grouped.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3)
        expected = scaled.reshape(x.shape) * gamma[:, None, None] + beta[:, None, None]
        expected = expected / (1 + np.exp(-expected)) if activation else expected
        result = y.transpose(0, 3, 1, 2) if last else y
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


# -- movement and others ---------------------------------------------------------------------------


def test_bias_softmax() -> None:
    x, bias = _floats((2, 3, 4, 5)), _floats((2, 1, 1, 5), 1)
    powers = np.exp(x + bias)
    attributes: dict[str, Any] = {"axis": 3, "is_inner_broadcast": 1}
    (y,) = run_op("BiasSoftmax", [x, bias], attributes, domain="com.microsoft")
    np.testing.assert_allclose(y, powers / powers.sum(-1, keepdims=True), rtol=1e-5)
    attributes = {"axis": 2, "is_inner_broadcast": 0}
    (y,) = run_op("BiasSoftmax", [x, bias[0, 0]], attributes, domain="com.microsoft")
    powers = np.exp(x + bias[0, 0])
    np.testing.assert_allclose(y, powers / powers.sum((2, 3), keepdims=True), rtol=1e-5)


def test_bias_add_and_split_gelu() -> None:
    x, bias, skip = _floats((2, 3, 8)), _floats((8,), 1), _floats((2, 3, 8), 2)
    (y,) = run_op("BiasAdd", [x, bias, skip], domain="com.microsoft")
    np.testing.assert_allclose(y, x + bias + skip, rtol=1e-6)
    (y,) = run_op("BiasSplitGelu", [x, bias], domain="com.microsoft")
    (gate,) = run_op("Gelu", [(x + bias)[..., 4:]], domain="com.microsoft")
    np.testing.assert_allclose(y, (x + bias)[..., :4] * gate, rtol=1e-5)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "constants"),
    [
        ("Trilu", [_floats((2, 4, 5))], {"upper": 0}, ()),
        ("Trilu", [_floats((2, 4, 5)), np.array(1)], {}, (1,)),
        ("ExpandDims", [_floats((2, 4)), np.array(-2, np.int32)], {}, (1,)),
        ("Pad", [_floats((2, 4)), np.array([1, 0, 0, 2]), np.array(3, np.float32)], {}, (1, 2)),
        ("Pad", [_floats((2, 4)), np.array([1, 0, 0, 2])], {"mode": "reflect"}, (1,)),
        ("GatherND", [_floats((2, 4)), np.array([[1, 2], [0, 3]])], {}, ()),
        ("GatherND", [_floats((2, 4)), np.array([[1, 2], [0, 3]], np.int32)], {}, ()),
        ("Range", [np.array(v, np.float32) for v in (1, 9, 3)], {}, (0, 1, 2)),
        ("Range", [np.array(v, np.int64) for v in (1, 4)], {}, (0, 1)),
        ("GridSample", [_floats((1, 2, 5, 5)), _floats((1, 3, 4, 2))], {"align_corners": 1}, ()),
        ("GridSample", [_floats((1, 2, 5, 5)), _floats((1, 3, 4, 2))],
         {"mode": "nearest", "padding_mode": "border"}, ()),
    ],
)  # fmt: skip
def test_as_in_the_default_domain(
    op_type: str, inputs: list[Array], attributes: dict[str, Any], constants: tuple[int, ...]
) -> None:
    assert_matches_onnxruntime(
        op_type, inputs, attributes, domain="com.microsoft", constants=constants, atol=1e-5
    )


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(4, 3), (1, 5), (2, 1)])
def test_crop_and_resize(mode: str, size: tuple[int, int]) -> None:
    boxes = [[0.1, 0.2, 0.9, 0.8], [-0.2, 0.1, 0.5, 1.3], [0.8, 0.7, 0.2, 0.1]]
    inputs = [
        _floats((2, 3, 6, 5)),
        np.array(boxes, np.float32),
        np.array([0, 1, 0], np.int32),
        np.array(size, np.int32),
    ]
    attributes = {"mode": mode, "extrapolation_value": 7.0}
    assert_matches_onnxruntime(
        "CropAndResize", inputs, attributes, domain="com.microsoft", constants=(3,), atol=1e-5
    )


def test_inverse() -> None:
    x = _floats((2, 4, 4))
    assert_matches_onnxruntime("Inverse", [x], domain="com.microsoft", rtol=1e-4)
    x[0, 1] = x[0, 0]
    (y,) = run_op("Inverse", [x], domain="com.microsoft")
    assert np.isnan(y[0]).all()
    np.testing.assert_allclose(y[1] @ x[1], np.eye(4), atol=1e-5)
    with pytest.raises(ModelError, match="square"):
        run_op("Inverse", [x[:, 1:]], domain="com.microsoft")


def test_nhwc_conv() -> None:
    x, w, bias = _floats((1, 6, 7, 3)), _floats((4, 3, 3, 3), 1), _floats((4,), 2)
    (y,) = run_op("NhwcConv", [x, w, bias], {"strides": [2, 1]}, domain="com.microsoft")
    transposed = [a.transpose(0, 3, 1, 2).copy() for a in (x, w)]
    (expected,) = run_op("Conv", [*transposed, bias], {"strides": [2, 1]})
    np.testing.assert_allclose(y, expected.transpose(0, 2, 3, 1), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 0, 0, 2]},
        {"kernel_shape": [2, 2], "dilations": [2, 1], "strides": [2, 3], "ceil_mode": 1},
        {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    ],
)
def test_nhwc_max_pool(attributes: dict[str, Any], dtype: type) -> None:
    x: Array = np.random.default_rng(3).integers(0, 255, (2, 7, 6, 5)).astype(dtype)
    assert_matches_onnxruntime("NhwcMaxPool", [x], attributes, domain="com.microsoft")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("attributes", [{}, {"metric": "sqeuclidean"}, {"metric": "euclidean"}])
def test_distances(attributes: dict[str, str], dtype: type) -> None:
    a: Array = _floats((5, 3)).astype(dtype)
    b: Array = _floats((4, 3), 1).astype(dtype)
    assert_matches_onnxruntime(
        "CDist", [a, b], attributes, domain="com.microsoft", rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("widths", "metric", "message"),
    [((3, 2), "euclidean", "as many columns"), ((3, 3), "cosine", "metric is 'cosine'")],
)
def test_distances_that_are_none(widths: tuple[int, int], metric: str, message: str) -> None:
    operands = [_floats((2, width)) for width in widths]
    with pytest.raises(ModelError, match=message):
        run_op("CDist", operands, {"metric": metric}, domain="com.microsoft")
