"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import popc
import popc_runtime
from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import assert_matches_onnxruntime, run_ir, run_onnxruntime, run_op

_INTEGERS = (np.int8, np.uint8, np.int16, np.uint16)


def _random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _any_integers(dtype: Any, shape: tuple[int, ...], seed: int = 1) -> Array:
    limits = np.iinfo(dtype)
    return _random(seed).integers(limits.min, limits.max, shape, dtype, endpoint=True)


def _scale(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    return _random(2).uniform(0.01, 0.05, shape).astype(dtype)


# -- against onnxruntime ---------------------------------------------------------------------------

# scale shape, attributes, opset
_GRANULARITIES = [
    pytest.param((), {}, 10, id="tensor"),
    pytest.param((1,), {}, 13, id="tensor-one-element"),
    pytest.param((5,), {}, 13, id="default-axis"),
    pytest.param((7,), {"axis": -1}, 13, id="last-axis"),
    pytest.param((3,), {"axis": 0}, 19, id="first-axis"),
    pytest.param((3, 2, 7), {"axis": 1, "block_size": 3}, 21, id="blocks"),
    pytest.param((3, 5, 2), {"axis": -1, "block_size": 4}, 21, id="blocks-last"),
    pytest.param((3, 5, 7), {"axis": 2, "block_size": 1}, 21, id="blocks-of-one"),
]


@pytest.mark.parametrize(("shape", "attributes", "opset"), _GRANULARITIES)
@pytest.mark.parametrize("constants", [(), (1, 2)], ids=["run-time", "constant"])
def test_granularities(
    shape: tuple[int, ...], attributes: dict[str, Any], opset: int, constants: tuple[int, ...]
) -> None:
    x = (_random().normal(size=(3, 5, 7)) * 3).astype(np.float32)
    zero = _any_integers(np.uint8, shape)
    for op_type, operand in (
        ("QuantizeLinear", x),
        ("DequantizeLinear", _any_integers(np.uint8, x.shape)),
    ):
        inputs = [operand, _scale(shape), zero]
        assert_matches_onnxruntime(
            op_type, inputs, attributes, opset=opset, constants=constants, rtol=0, atol=0
        )


@pytest.mark.parametrize("dtype", _INTEGERS)
@pytest.mark.parametrize("float_type", [np.float32, np.float16])
def test_element_types(dtype: Any, float_type: Any) -> None:
    x = (_random().normal(size=3000) * 3).astype(float_type)
    scale, zero = _scale((), float_type), np.array(3, dtype)
    assert_matches_onnxruntime("QuantizeLinear", [x, scale, zero], opset=21, rtol=0, atol=0)
    quantized = _any_integers(dtype, (3000,))
    inputs = [quantized, scale, zero]
    assert_matches_onnxruntime("DequantizeLinear", inputs, opset=21, rtol=0, atol=0)


def test_bfloat16() -> None:
    """The quotient is not rounded to bfloat16, the restored value is."""
    x = (_random().normal(size=300) * 3).astype(ml_dtypes.bfloat16)
    scale, zero = np.array(0.0137, ml_dtypes.bfloat16), np.array(3, np.int8)
    (quantized,) = run_op("QuantizeLinear", [x, scale, zero], opset=21)
    quotient = x.astype(np.float32) / scale.astype(np.float32)
    np.testing.assert_array_equal(quantized, np.clip(np.rint(quotient) + 3, -128, 127))
    (restored,) = run_op("DequantizeLinear", [quantized, scale, zero], opset=21)
    product = (quantized.astype(np.float32) - 3) * scale.astype(np.float32)
    np.testing.assert_array_equal(restored, product.astype(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.parametrize("zero", [None, 0, 5, -7])
def test_dequantize_int32(zero: int | None) -> None:
    x = _any_integers(np.int32, (50,))
    parameter = None if zero is None else np.array(zero, np.int32)
    inputs = [x, np.array(1e-3, np.float32), parameter]
    assert_matches_onnxruntime("DequantizeLinear", inputs, opset=13, rtol=0, atol=0)


def test_ties_and_limits() -> None:
    halves = np.arange(-600, 600, dtype=np.float32) / 2
    x = np.concatenate([halves, np.array([np.inf, -np.inf, 1e38, -0.0], np.float32)])
    for scale in (1.0, 0.5, 3e-39):
        for zero in (np.int8(3), np.uint8(128), np.uint8(0), np.int8(-128)):
            inputs = [x, np.array(scale, np.float32), np.array(zero)]
            assert_matches_onnxruntime("QuantizeLinear", inputs, opset=13, rtol=0, atol=0)


def test_output_dtype() -> None:
    x = (_random().normal(size=40) * 900).astype(np.float32)
    inputs: list[Array | None] = [x, _scale(())]
    assert_matches_onnxruntime("QuantizeLinear", inputs, opset=13)
    for number in (3, 5):  # int8, int16
        assert_matches_onnxruntime("QuantizeLinear", inputs, {"output_dtype": number}, opset=21)


@pytest.mark.parametrize("values", ["normal", "positive", "negative", "zero", "large"])
def test_dynamic_quantize(values: str) -> None:
    x = _random().normal(size=(7, 5000)).astype(np.float32)
    x = {
        "normal": x,
        "positive": np.abs(x) + 1,
        "negative": -np.abs(x) - 1,
        "zero": np.zeros((2, 3), np.float32),
        "large": x * np.float32(1e30),
    }[values]
    assert_matches_onnxruntime("DynamicQuantizeLinear", [x], opset=11, outputs=3, rtol=0, atol=0)


# -- against the formula ---------------------------------------------------------------------------


@given(data=st.data())
def test_blocks_of_strided_operands(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.integers(0, 6)) for _ in range(rank))
    axis = data.draw(st.integers(0, rank - 1))
    block = data.draw(st.integers(1, 7))
    count = -(-shape[axis] // block)
    scale = _scale((*shape[:axis], count, *shape[axis + 1 :]))
    zero = _any_integers(np.int8, scale.shape)
    whole = (_random(3).normal(size=shape[::-1]) * 2).astype(np.float32)
    x = whole.T
    attributes: dict[str, Any] = {"axis": axis, "block_size": block, "dtype": "int8"}
    (quantized,) = run_ir("QuantizeLinear", [x, scale, zero], attributes)
    per_element = [
        np.repeat(p, block, axis).take(range(shape[axis]), axis).astype(np.float32)
        for p in (scale, zero)
    ]
    expected = np.clip(np.rint(x / per_element[0]) + per_element[1], -128, 127)
    np.testing.assert_array_equal(quantized, expected.astype(np.int8))
    attributes["dtype"] = "float32"
    (restored,) = run_ir("DequantizeLinear", [quantized[::-1], scale[::-1], zero[::-1]], attributes)
    if axis > 0 or count <= 1 or shape[0] % block == 0:
        wanted = ((quantized - per_element[1]) * per_element[0])[::-1]
        np.testing.assert_array_equal(restored, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("zero", [0, -128, 77])
def test_fake_quantize(dtype: Any, zero: int) -> None:
    x = (_random().normal(size=(3, 9000)) * 3).astype(dtype)
    scale, parameter = np.array(0.03, np.float32), np.array(zero, np.int8)
    attributes: dict[str, Any] = {"axis": 0, "dtype": "int8"}
    (quantized,) = run_ir("QuantizeLinear", [x, scale, parameter], attributes)
    attributes["dtype"] = np.dtype(dtype).name
    expected = run_ir("DequantizeLinear", [quantized, scale, parameter], attributes)
    limits = {"scale": float(scale), "low": -128.0 - zero, "high": 127.0 - zero}
    np.testing.assert_array_equal(run_ir("FakeQuantize", [x], limits), expected)


def test_large_tensor_in_blocks() -> None:
    x = (_random().normal(size=(3, 70, 900)) * 3).astype(np.float32)
    scale, zero = _scale((70,)), _any_integers(np.int8, (70,))
    inputs = [x, scale, zero]
    assert_matches_onnxruntime("QuantizeLinear", inputs, {"axis": 1}, opset=13, rtol=0, atol=0)


def test_integer_input_and_scale() -> None:
    x, zero = np.array([7, -9, 1000, 5], np.int32), np.array(-1, np.int8)
    for scale, opset in ((np.array(2, np.int32), 19), (np.array(2, np.float32), 13)):
        (y,) = run_op("QuantizeLinear", [x, scale, zero], opset=opset)
        np.testing.assert_array_equal(y, np.array([3, -5, 127, 1], np.int8))


def test_output_dtype_of_dequantize() -> None:
    x, scale = _any_integers(np.int8, (9,)), np.array(0.1, np.float16)
    (y,) = run_op("DequantizeLinear", [x, scale], {"output_dtype": 1}, opset=23)
    np.testing.assert_array_equal(y, x * scale.astype(np.float32))


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "message"),
    [
        ("QuantizeLinear", [(2, 3), (2,)], {}, r"scale of shape \[2\] does not fit axis 1"),
        ("QuantizeLinear", [(2, 3), (3, 1)], {"block_size": 2}, "in blocks of 2"),
        ("QuantizeLinear", [(2, 3), ()], {"output_dtype": 7}, "cannot quantise to int64"),
        ("QuantizeLinear", [(2, 3), ()], {"output_dtype": 22}, "int4 is not supported"),
    ],
)
def test_scales_and_types_that_do_not_fit_are_refused(
    op_type: str, inputs: list[tuple[int, ...]], attributes: dict[str, Any], message: str
) -> None:
    arrays = [np.ones(shape, np.float32) for shape in inputs]
    with pytest.raises(ModelError, match=message):
        run_op(op_type, arrays, attributes, opset=21)


@pytest.mark.parametrize(
    ("op_type", "dtypes", "dtype", "message"),
    [
        ("DequantizeLinear", ["float32", "float32"], "float32", "cannot dequantise float32"),
        ("DequantizeLinear", ["int8", "float32"], "int8", "of a float type, not int8"),
        ("QuantizeLinear", ["float32", "int32"], "int8", "scale must be of a float type"),
        ("QuantizeLinear", ["float32", "float32", "uint8"], "int8", "zero point is uint8"),
        ("Requantize", ["int32", "float32", "uint8"], "int8", "must be one int8"),
        ("DynamicQuantizeLinear", ["float64"], "uint8", "must be float32, not float64"),
    ],
)
def test_type_rules(op_type: str, dtypes: list[str], dtype: str, message: str) -> None:
    inputs = [np.ones((), name) for name in dtypes]
    with pytest.raises(ModelError, match=message):
        run_ir(op_type, inputs, {"axis": 0, "dtype": dtype})


def test_zero_point_of_another_type() -> None:
    inputs: list[Array] = [np.ones(3, np.float32), np.ones((), np.float32), np.ones((), np.int8)]
    with pytest.raises(ModelError, match="output_dtype is uint8 but the zero point is int8"):
        run_op("QuantizeLinear", inputs, {"output_dtype": 2}, opset=21)


# -- what is undefined -----------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["native", "numpy"])
@pytest.mark.parametrize("dtype", [TensorProto.INT8, TensorProto.UINT8])
@pytest.mark.parametrize("scale", [np.inf, 0.1])
def test_nan_becomes_the_lowest(engine: Any, dtype: int, scale: float) -> None:
    """A mask of -infinity, whose scale is infinite, stays one, as in onnxruntime on x86-64."""
    x = np.array([[-np.inf, 0, np.nan, 2.5, np.inf, -1, np.nan, -np.inf, 3]] * 3, np.float32)
    quantized = np.dtype(helper.tensor_dtype_to_np_dtype(dtype))
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
                helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
                helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["integers"]),
            ],
            "masks",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
            [
                helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape),
                helper.make_tensor_value_info("integers", dtype, x.shape),
            ],
            [
                numpy_helper.from_array(np.array(scale, np.float32), "scale"),
                numpy_helper.from_array(np.array(2, quantized), "zero"),
            ],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    found = popc_runtime.load(popc.compile(model).to_bytes(), engine=engine).run({"x": x})
    lowest = np.iinfo(quantized).min
    assert (found["integers"][np.isnan(x)] == lowest).all()
    for array, expected in zip(found.values(), run_onnxruntime(model, {"x": x}), strict=True):
        np.testing.assert_array_equal(array, expected)
