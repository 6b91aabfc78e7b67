from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popc_runtime.errors import DataDependentShapeError, ModelError
from popc_runtime.format import Array, Attribute
from tests.support.oracles import assert_matches_onnxruntime, run_ir, run_op

_RNG = np.random.default_rng(12)


def _random(*shape: int, dtype: Any = np.float32) -> Array:
    return _RNG.standard_normal(shape).astype(dtype)


_CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 4, 5), (3, 2, 3, 3), {}),
    ((2, 4, 5, 6), (4, 3, 2, 2), {"strides": [2, 2]}),
    ((2, 4, 5, 6), (4, 3, 2, 3), {"strides": [2, 3], "pads": [1, 0, 0, 2]}),
    ((1, 2, 80, 90), (2, 6, 2, 2), {"strides": [2, 2]}),
    ((1, 2, 80, 90), (2, 6, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 3, 6, 6), (3, 2, 4, 3), {"strides": [3, 2], "output_padding": [2, 1]}),
    ((1, 3, 6, 6), (3, 2, 2, 2), {"strides": [2, 2], "output_padding": [1, 1]}),
    ((1, 3, 6, 6), (3, 2, 2, 3), {"dilations": [2, 3], "strides": [1, 2]}),
    ((1, 6, 5, 5), (6, 2, 3, 3), {"group": 3, "strides": [2, 2]}),
    ((1, 4, 5, 5), (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    ((2, 3, 7), (3, 4, 5), {"strides": [3], "pads": [2, 1]}),
    ((1, 2, 3, 4, 5), (2, 3, 2, 3, 2), {"strides": [2, 1, 2], "pads": [0, 1, 0, 1, 1, 0]}),
    ((1, 2, 5, 5), (2, 2, 3, 3), {"output_shape": [10, 11], "strides": [2, 2]}),
    ((1, 2, 5, 5), (2, 2, 3, 3), {"output_shape": [8, 9], "strides": [2, 2]}),
    ((1, 2, 5, 5), (2, 2, 3, 3), {"output_shape": [12, 11], "strides": [2, 2]}),
    (
        (1, 2, 5, 5),
        (2, 2, 4, 4),
        {"output_shape": [9, 10], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    ),
    (
        (1, 2, 5, 5),
        (2, 2, 4, 4),
        {"output_shape": [9, 9], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    ),
    ((1, 2, 5, 6), (2, 2, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 2, 5, 6), (2, 2, 3, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    ((1, 2, 5, 6), (2, 2, 2, 2), {"auto_pad": "SAME_UPPER", "strides": [3, 3]}),
    ((1, 2, 5, 6), (2, 2, 3, 4), {"auto_pad": "VALID", "strides": [2, 2]}),
]


@pytest.mark.parametrize(("x", "w", "attributes"), _CASES)
def test_conv_transpose(x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]) -> None:
    bias = _random(w[1] * attributes.get("group", 1))
    inputs = [_random(*x), _random(*w), bias]
    assert_matches_onnxruntime("ConvTranspose", inputs, attributes, atol=1e-4)
    assert_matches_onnxruntime("ConvTranspose", inputs[:2], attributes, constants={1}, atol=1e-4)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_strided_input_and_activation(stride: int, dtype: Any) -> None:
    x = _random(2, 5, 12, 3, dtype=dtype).transpose(0, 3, 1, 2)[..., ::2]
    w, bias = _random(2, 2, 4, 3, dtype=dtype).transpose(3, 2, 0, 1), _random(4, dtype=dtype)
    strides: dict[str, Attribute] = {"strides": (stride, stride)}
    (plain,) = run_ir("ConvTranspose", [x.astype(np.float64), w.astype(np.float64)], strides)
    attributes: dict[str, Attribute] = {**strides, "activation": "Relu"}
    (actual,) = run_ir("ConvTranspose", [x, w, bias], attributes)
    assert actual.dtype == dtype
    tolerance = 2e-2 if dtype == np.float16 else 1e-5
    wanted = np.maximum(plain + bias[:, None, None], 0)
    np.testing.assert_allclose(actual, wanted, atol=tolerance)


@pytest.mark.parametrize(
    ("x", "w", "attributes", "message"),
    [
        ((1, 3, 5, 5), (4, 2, 3, 3), {}, "X has 3 channels"),
        ((1, 3, 5, 5), (3, 2, 3, 3), {"group": 2}, "do not split into 2 groups"),
        ((1, 3, 1, 1), (3, 2, 3, 3), {"pads": [2, 2, 2, 2]}, "negative"),
        ((1, 3, 5, 5), (3, 2, 3), {}, "but W is"),
        ((1, 3, 5, 5), (3, 2, 3, 3), {"output_padding": [1]}, "output_padding has 1"),
        ((1, 3, 5, 5), (3, 2, 3, 3), {"auto_pad": "SAME"}, "unknown value"),
    ],
)
def test_wrong_groups_and_paddings_are_refused(
    x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError) as caught:
        run_op("ConvTranspose", [_random(*x), _random(*w)], attributes)
    assert message in str([caught.value.message, *caught.value.details])


_DEFORMED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], bool]] = [
    ((1, 2, 6, 7), (3, 2, 3, 3), {"pads": [1, 1, 1, 1]}, False),
    ((2, 4, 8, 7), (4, 2, 2, 3), {"group": 2, "offset_group": 2, "strides": [2, 1]}, True),
    ((1, 4, 9, 9), (2, 4, 3, 3), {"dilations": [2, 1], "pads": [0, 1, 2, 1]}, True),
]


@pytest.mark.parametrize(("x", "w", "attributes", "masked"), _DEFORMED)
def test_deform_conv(
    x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any], *, masked: bool
) -> None:
    plain = {k: tuple(v) for k, v in attributes.items() if isinstance(v, list)}
    dense = (_random(*x), _random(w[0], x[1], *w[2:]))
    size = run_ir("Conv", dense, plain)[0].shape[2:]
    points = attributes.get("offset_group", 1) * w[2] * w[3]
    offset = 2 * _random(x[0], 2 * points, *size)
    mask = _random(x[0], points, *size) if masked else None
    inputs = [_random(*x), _random(*w), offset, _random(w[0]), mask]
    if mask is None:
        inputs.pop()
    assert_matches_onnxruntime("DeformConv", inputs, attributes, opset=19, rtol=1e-4, atol=1e-4)


def test_deform_conv_without_offsets_is_conv() -> None:
    x, w = _random(1, 3, 40, 40), _random(4, 3, 3, 3)
    offset = np.zeros((1, 18, 40, 40), np.float32)
    attributes: dict[str, Attribute] = {"pads": (1, 1, 1, 1)}
    (wanted,) = run_ir("Conv", [x, w], attributes)
    (actual,) = run_ir("DeformConv", [x, w, offset], attributes)
    np.testing.assert_allclose(actual, wanted, atol=1e-4)


def test_deform_conv_refuses_offsets_that_do_not_fit() -> None:
    x, w = _random(1, 3, 6, 6), _random(2, 3, 3, 3)
    with pytest.raises(ModelError, match="the offset is float32"):
        run_ir("DeformConv", [x, w, _random(1, 9, 4, 4)], {})
    with pytest.raises(ModelError, match="2 spatial axes"):
        run_ir("DeformConv", [_random(1, 3, 6), _random(2, 3, 3), _random(1, 6, 4)], {})
    with pytest.raises(ModelError, match="offset groups"):
        run_ir("DeformConv", [x, w, _random(1, 18, 4, 4)], {"offset_group": 2})


_IMAGES: list[tuple[list[int], list[int], dict[str, Any], int]] = [
    ([5, 5], [1, 5], {}, 5),
    ([7, 8], [3, 2], {"strides": [2, 1]}, 21),
    ([7, 8], [3, 3], {"pads": [1, 0, 1, 2], "dilations": [1, 2]}, 42),
    ([4, 5, 6], [2, 1, 3], {"strides": [1, 2, 1]}, 36),
    ([9], [3], {"pads": [1, 1]}, 9),
]


@pytest.mark.parametrize(("image", "block", "attributes", "blocks"), _IMAGES)
def test_col2im(
    image: list[int], block: list[int], attributes: dict[str, Any], blocks: int
) -> None:
    x = _random(2, 3 * int(np.prod(block)), blocks)
    inputs = [x, np.array(image, np.int64), np.array(block, np.int64)]
    assert_matches_onnxruntime(
        "Col2Im", inputs, attributes, opset=18, constants={1, 2}, rtol=1e-5, atol=1e-5
    )


def test_col2im_refuses_blocks_that_do_not_fit() -> None:
    shapes = [np.array([5, 5], np.int64), np.array([2, 2], np.int64)]
    for x, message in (((1, 6, 16), "not whole blocks"), ((1, 8, 15), "has 16 blocks")):
        with pytest.raises(ModelError, match=message):
            run_op("Col2Im", [_random(*x), *shapes], opset=18, constants={1, 2})
    with pytest.raises(DataDependentShapeError):
        run_op("Col2Im", [_random(1, 8, 16), *shapes], opset=18)
