"""Products and convolutions of quantised tensors: exact integers, whatever the operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import assert_matches_onnxruntime, run_ir, run_op


def _integers(dtype: Any, shape: tuple[int, ...], seed: int = 1) -> Array:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, dtype, endpoint=True)


def _product(a: Array, b: Array, a_zero: Array | int = 0, b_zero: Array | int = 0) -> Array:
    left, right = (x.astype(np.int64) - z for x, z in ((a, a_zero), (b, b_zero)))
    result: Array = (left @ right).astype(np.int32)
    return result


# -- MatMulInteger ---------------------------------------------------------------------------------

_SHAPES = [
    ((3, 4), (4, 5)),
    ((2, 3, 4), (4, 5)),
    ((2, 1, 3, 4), (3, 4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((3, 0), (0, 5)),
    ((0, 4), (4, 5)),
    ((70, 300), (300, 90)),
]


@pytest.mark.parametrize(("left", "right"), _SHAPES)
@pytest.mark.parametrize("types", [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)])
def test_matmul_shapes(left: tuple[int, ...], right: tuple[int, ...], types: Any) -> None:
    a, b = _integers(types[0], left), _integers(types[1], right, 2)
    zeros = np.array(77, types[0]), np.array(-3 % 100, types[1])
    for inputs in ([a, b], [a, b, *zeros]):
        (y,) = run_op("MatMulInteger", inputs, opset=10)
        np.testing.assert_array_equal(y, _product(*inputs))


@pytest.mark.parametrize("constants", [(), (1, 2, 3), (0, 2), (1,)])
@pytest.mark.parametrize("length", [257, 1100, 5000])
def test_sums_beyond_float32(length: int, constants: tuple[int, ...]) -> None:
    """The largest magnitudes there can be, in sums that float32 cannot hold."""
    a = np.full((3, length), 255, np.uint8)
    b = np.full((length, 2), -128, np.int8)
    a[1], b[:, 1] = _integers(np.uint8, (length,)), _integers(np.int8, (length,))
    zeros = np.array(0, np.uint8), np.array(127, np.int8)
    (y,) = run_op("MatMulInteger", [a, b, *zeros], opset=10, constants=constants)
    np.testing.assert_array_equal(y, _product(a, b, *zeros))


def test_products_of_nothing() -> None:
    """Of no matrices that are known before."""
    a, b = np.empty((0, 3, 4), np.uint8), np.empty((0, 4, 5), np.int8)
    (y,) = run_op("MatMulInteger", [a, b], opset=10, constants=(1,))
    assert y.shape == (0, 3, 5)


def test_overflow_wraps() -> None:
    a, b = np.full((1, 40000), 255, np.uint8), np.full((40000, 1), 255, np.uint8)
    (y,) = run_op("MatMulInteger", [a, b], opset=10)
    assert y.item() == 40000 * 255 * 255 - (1 << 32)


def test_zero_points_per_row_and_column() -> None:
    a, b = _integers(np.uint8, (3, 4)), _integers(np.int8, (4, 5))
    a_zero, b_zero = _integers(np.uint8, (3,)), _integers(np.int8, (5,))
    (y,) = run_op("MatMulInteger", [a, b, a_zero, b_zero], opset=10)
    np.testing.assert_array_equal(y, _product(a, b, a_zero[:, None], b_zero))
    a, b = _integers(np.uint8, (2, 3, 4)), _integers(np.int8, (2, 4, 5))
    a_zero, b_zero = _integers(np.uint8, (2, 3, 1)), _integers(np.int8, (2, 1, 5))
    (y,) = run_op("MatMulInteger", [a, b, a_zero, b_zero], opset=10)
    np.testing.assert_array_equal(y, _product(a, b, a_zero, b_zero))


def test_matmul_refuses_zero_points_that_do_not_fit() -> None:
    a, b = _integers(np.uint8, (3, 4)), _integers(np.int8, (4, 5))
    attributes = {"dtype": "int32"}
    with pytest.raises(ModelError, match="zero point of input 0 is int8, not uint8"):
        run_ir("MatMulInteger", [a, b, np.array(1, np.int8)], attributes)
    with pytest.raises(ModelError, match=r"zero point \[2, 1, 1\] does not fit"):
        run_ir("MatMulInteger", [a, b, np.ones((2, 1, 1), np.uint8)], attributes)
    with pytest.raises(ModelError, match="int32, float32, int8, uint8, not int64"):
        run_ir("MatMulInteger", [a, b], {"dtype": "int64"})
    with pytest.raises(ModelError, match="do not match: 4 != 3"):
        run_op("MatMulInteger", [a, b[:3]], opset=10)
    with pytest.raises(ModelError, match="must be int8 or uint8, not int32"):
        run_ir("MatMulInteger", [a.astype(np.int32), b], attributes)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"dtype": "int8", "quantize_zero": 0}, "int8 needs quantize_scale"),
        ({"dtype": "int8", "quantize_scale": 0.1}, "int8 needs quantize_zero"),
        (
            {"dtype": "int8", "quantize_scale": 0.1, "quantize_zero": 128},
            "=128 is out of range for int8",
        ),
        (
            {"dtype": "uint8", "quantize_scale": 0.1, "quantize_zero": -1},
            "=-1 is out of range for uint8",
        ),
        (
            {"dtype": "float32", "rounding_scale": 0.1},
            "rounding needs rounding_low and rounding_high",
        ),
        ({"dtype": "float32", "rounding_low": 0.0, "rounding_high": 1.0}, "needs rounding_scale"),
    ],
)
def test_what_follows_sums_is_whole(attributes: dict[str, Any], message: str) -> None:
    a, b = _integers(np.uint8, (3, 4)), _integers(np.int8, (4, 5))
    with pytest.raises(ModelError, match=message):
        run_ir("MatMulInteger", [a, b], attributes)


@pytest.mark.parametrize(("index", "name"), [(5, "scale"), (6, "bias")])
def test_errors_tell_scales_from_biases(index: int, name: str) -> None:
    operands: list[Array | None] = [_integers(np.uint8, (3, 4)), _integers(np.int8, (4, 5))]
    operands += [None] * (index - 2)
    with pytest.raises(ModelError, match=f"the {name}, float32.3., does not fit axis 1"):
        run_ir("MatMulInteger", [*operands, np.ones(3, np.float32)], {"dtype": "float32"})


# -- QLinearMatMul ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [(), (6,)])
@pytest.mark.parametrize("columns", [(), (5,)])
def test_qlinear_matmul(rows: tuple[int, ...], columns: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = _integers(np.uint8, (6, 40)), _integers(np.int8, (40, 5))
    a_scale = rng.uniform(0.01, 0.02, rows).astype(np.float32)
    b_scale = rng.uniform(0.01, 0.02, columns).astype(np.float32)
    y_scale = np.array(0.03, np.float32)
    zeros = _integers(np.uint8, rows), _integers(np.int8, columns), np.array(100, np.uint8)
    inputs = [a, a_scale, zeros[0], b, b_scale, zeros[1], y_scale, zeros[2]]
    (y,) = run_op("QLinearMatMul", inputs, opset=10)
    row = (slice(None), np.newaxis) if rows else ()
    product = _product(a, b, zeros[0][row], zeros[1])
    scaled = product.astype(np.float32) * (a_scale[row] * b_scale / y_scale)
    np.testing.assert_array_equal(y, np.clip(np.rint(scaled) + 100, 0, 255).astype(np.uint8))
    if not rows:
        assert_matches_onnxruntime("QLinearMatMul", inputs, opset=10, rtol=0, atol=0)


# -- convolutions ----------------------------------------------------------------------------------

_CONVOLUTIONS = [
    pytest.param((2, 3, 9, 8), (4, 3, 3, 3), {"pads": [1, 0, 2, 1]}, id="padded"),
    pytest.param((1, 4, 9, 8), (6, 2, 3, 2), {"group": 2, "strides": [2, 1]}, id="groups"),
    pytest.param((1, 5, 7, 7), (5, 1, 3, 3), {"group": 5, "auto_pad": "SAME_UPPER"}, id="depth"),
    pytest.param((1, 6, 5, 5), (7, 6, 1, 1), {}, id="pointwise"),
    pytest.param((1, 3, 20), (4, 3, 5), {"dilations": [2]}, id="one-axis"),
]


@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), _CONVOLUTIONS)
@pytest.mark.parametrize("constants", [(), (1,), (2, 3), (1, 2, 3)])
def test_conv_integer(
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    attributes: dict[str, Any],
    constants: tuple[int, ...],
) -> None:
    x, w = _integers(np.uint8, x_shape), _integers(np.uint8, w_shape) // 2
    inputs = [x, w, np.array(100, np.uint8), np.array(60, np.uint8)]
    assert_matches_onnxruntime(
        "ConvInteger", inputs, attributes, opset=10, constants=constants, rtol=0, atol=0
    )


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("constants", [(), (1,)])
def test_conv_sums_beyond_float32(group: int, constants: tuple[int, ...]) -> None:
    x = np.full((1, 200 * group, 3, 3), 255, np.uint8)
    w = np.full((2 * group, 200, 3, 3), 255, np.uint8)
    x[0, 1], w[1] = 253, 251
    (y,) = run_op("ConvInteger", [x, w], {"group": group}, opset=10, constants=constants)
    groups = zip(x.reshape(group, -1), w.reshape(group, 2, -1), strict=True)
    expected = [w_part.astype(np.int64) @ x_part for x_part, w_part in groups]
    np.testing.assert_array_equal(y.reshape(group, 2), expected)


def test_conv_without_channels() -> None:
    x, w = np.empty((2, 0, 3, 3), np.uint8), np.empty((4, 0, 2, 2), np.uint8)
    (y,) = run_op("ConvInteger", [x, w], opset=10, constants=(1,))
    np.testing.assert_array_equal(y, np.zeros((2, 4, 2, 2), np.int32))


def test_conv_zero_point_per_channel() -> None:
    x, w = _integers(np.uint8, (1, 3, 4, 4)), _integers(np.int8, (5, 3, 4, 4))
    w_zero = _integers(np.int8, (5,))
    (y,) = run_op("ConvInteger", [x, w, None, w_zero], opset=10)
    centred = w.astype(np.int64) - w_zero[:, None, None, None]
    np.testing.assert_array_equal(y.ravel(), centred.reshape(5, -1) @ x.ravel())


@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), _CONVOLUTIONS)
@pytest.mark.parametrize("bias", [None, 1000, 1 << 30])
@pytest.mark.parametrize("constants", [(), (3, 4, 5, 8)])
def test_qlinear_conv(
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    attributes: dict[str, Any],
    bias: int | None,
    constants: tuple[int, ...],
) -> None:
    rng = np.random.default_rng(0)
    outputs = w_shape[0]
    inputs: list[Array | None] = [
        _integers(np.uint8, x_shape),
        np.array(0.02, np.float32),
        np.array(120, np.uint8),
        _integers(np.int8, w_shape) // 2,
        rng.uniform(0.01, 0.02, outputs).astype(np.float32),
        np.zeros(outputs, np.int8),
        np.array(0.05, np.float32),
        np.array(128, np.uint8),
    ]
    if bias is not None:
        inputs.append(rng.integers(-bias, bias, outputs, np.int32))
    used = [index for index in constants if index < len(inputs)]
    assert_matches_onnxruntime(
        "QLinearConv", inputs, attributes, opset=10, constants=used, rtol=0, atol=0
    )
