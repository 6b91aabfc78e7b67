"""Floats of eight bits: every code, roundings, scales, products, and who refuses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import popc
import popc_runtime
from popc.frontend.rules.float8 import EXACT_HALVES
from popc.ir import TensorType
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType
from popc_runtime.kernels.parts.float8 import from_float8, to_float8
from tests.support.oracles import run_kernel, run_onnxruntime, run_op

_T = TensorProto
_NUMPY: dict[int, Any] = {
    _T.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    _T.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    _T.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    _T.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
}
_ALL = np.arange(256, dtype=np.uint8)
_FORMATS = pytest.mark.parametrize("number", _NUMPY)


def _dtype(number: int) -> DType:
    return DType.of(_NUMPY[number])


def _numbers(number: int) -> Array:
    """Everything that decides a rounding: codes, what lies between them, neighbours of both."""
    codes = _ALL.view(_NUMPY[number]).astype(np.float32)
    finite = np.unique(codes[np.isfinite(codes)])
    points = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2, 2 * finite[[0, -1]]])
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 3e38], np.float32)
    up, down = (np.nextafter(points, np.float32(end)) for end in (np.inf, -np.inf))
    noise = np.random.default_rng(0).integers(0, 1 << 32, 20_000, np.uint32).view(np.float32)
    return np.concatenate([points, up, down, ends, noise]).astype(np.float32)


@_FORMATS
def test_every_code(number: int) -> None:
    expected = _ALL.view(_NUMPY[number]).astype(np.float32)
    found = from_float8(_ALL, _dtype(number))
    np.testing.assert_array_equal(found, expected)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(expected[known]))


@_FORMATS
@pytest.mark.parametrize("saturates", [True, False])
@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64])
def test_rounding(number: int, saturates: bool, source: Any) -> None:  # noqa: FBT001
    with np.errstate(all="ignore"):
        x = _numbers(number).astype(source)
        cast = numpy_helper.saturate_cast if saturates else lambda values, to: values.astype(to)
        expected = cast(x, _NUMPY[number]).astype(np.float32)
    found = from_float8(to_float8(x, _dtype(number), saturates=saturates), _dtype(number))
    np.testing.assert_array_equal(found, expected)


@_FORMATS
def test_there_and_back_as_onnxruntime(number: int) -> None:
    """Saturating: else it makes numbers of what is little too large, against its own standard."""
    x = _numbers(number)
    nodes = [
        helper.make_node("Cast", ["x"], ["narrow"], to=number),
        helper.make_node("Cast", ["narrow"], ["y"], to=_T.FLOAT),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", _T.FLOAT, x.shape)], [value("y", _T.FLOAT, x.shape)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    (expected,) = run_onnxruntime(model, {"x": x})
    codes = to_float8(x, _dtype(number))
    np.testing.assert_array_equal(from_float8(codes, _dtype(number)), expected)


@_FORMATS
@pytest.mark.parametrize("source", [np.float16, np.float32, np.int32, np.uint8, np.bool_])
def test_casts(number: int, source: Any) -> None:
    x = np.array([[0, 1, 3, 100, 250]]).astype(source)
    (found,) = run_op("Cast", [x], {"to": number}, opset=23)
    expected = numpy_helper.saturate_cast(x.astype(np.float32), _NUMPY[number])
    np.testing.assert_array_equal(found, expected.view(np.uint8))
    back = helper.np_dtype_to_tensor_dtype(np.dtype(source))
    (found,) = run_op("Cast", [expected], {"to": back}, opset=23)
    np.testing.assert_array_equal(found, expected.astype(np.float32).astype(source))


@_FORMATS
@pytest.mark.parametrize("to", _NUMPY)
def test_between_formats(number: int, to: int) -> None:
    x = _ALL.view(_NUMPY[number])
    (found,) = run_op("Cast", [x], {"to": to}, opset=23)
    expected = x if number == to else numpy_helper.saturate_cast(x.astype(np.float32), _NUMPY[to])
    same = found.view(_NUMPY[to]).astype(np.float32)
    np.testing.assert_array_equal(same, expected.astype(np.float32))


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (70_000,), (3, 70_000), (5, 4, 3)])
@pytest.mark.parametrize("exponent", [None, -32, -3, 0, 5, 31])
def test_scales_and_layouts(shape: tuple[int, ...], exponent: int | None) -> None:
    """Transposed and reversed operands, and results in a part of something larger."""
    dtype = DType.FLOAT8E4M3FNUZ
    rng = np.random.default_rng(1)
    x = rng.standard_normal(shape[::-1]).astype(np.float32).T
    x = x[..., ::-1] if shape else x
    scale = [] if exponent is None else [np.array(exponent, np.int32)]
    types = [TensorType(DType.FLOAT32, shape), *(TensorType(DType.INT32, ()) for _ in scale)]
    (codes,) = run_kernel(
        "Pow2ScaleThenCast", [x, *scale], types, {"to": dtype.value, "saturate": 1},
        [False] * len(types),
    )  # fmt: skip
    power = np.float32(2.0 ** (exponent or 0))
    expected = to_float8(x * power, dtype)
    np.testing.assert_array_equal(codes, expected)
    types[0] = TensorType(dtype, shape)
    turned = codes.T.copy().T
    (values,) = run_kernel(
        "CastThenPow2Scale", [turned, *scale], types, {"to": "float32"}, [False] * len(types)
    )
    np.testing.assert_array_equal(values, from_float8(codes, dtype) * power)


# -- quantising ------------------------------------------------------------------------------------


def _quantising(number: int, scale: Array, attributes: dict[str, Any]) -> onnx.ModelProto:
    """x, quantised and dequantised."""
    node = helper.make_node
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes),
    ]
    value = helper.make_tensor_value_info
    zeros = [0.0] * scale.size
    weights = [
        numpy_helper.from_array(scale, "s"),
        helper.make_tensor("z", number, scale.shape, zeros),
    ]
    outputs = [value("q", number, [6, 5]), value("y", _T.FLOAT, [6, 5])]
    graph = helper.make_graph(nodes, "g", [value("x", _T.FLOAT, [6, 5])], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@_FORMATS
@pytest.mark.parametrize(
    ("scale", "attributes"),
    [
        (np.float32(0.25), {}),
        (np.float32(0.3), {}),
        (np.linspace(0.1, 3, 5, dtype=np.float32), {"axis": 1}),
        (np.linspace(0.1, 3, 6, dtype=np.float32), {"axis": 0}),
        (np.linspace(0.1, 3, 15, dtype=np.float32).reshape(3, 5), {"axis": 0, "block_size": 2}),
    ],
    ids=["power", "one", "columns", "rows", "blocks"],
)
def test_quantising(number: int, scale: Array, attributes: dict[str, Any], tmp_path: Path) -> None:
    model = _quantising(number, np.asarray(scale), attributes)
    x = np.random.default_rng(2).standard_normal((6, 5)).astype(np.float32) * 300
    expected: Any = ReferenceEvaluator(model).run(None, {"x": x})
    program = popc_runtime.load(popc.compile(model).save(tmp_path / "p.popx"))
    found = program.run({"x": x})
    np.testing.assert_array_equal(found["q"], np.asarray(expected[0]).view(np.uint8))
    np.testing.assert_array_equal(found["y"], expected[1])


# -- inputs, weights and products ------------------------------------------------------------------


@pytest.mark.parametrize("number", [_T.FLOAT8E4M3FNUZ, _T.FLOAT8E5M2FNUZ])
@pytest.mark.parametrize("op_type", ["MatMul", "Conv"])
@pytest.mark.parametrize("exponent", [None, 0, -4, 7, -31])
def test_products(number: int, op_type: str, exponent: int | None, tmp_path: Path) -> None:
    """PopART's: both operands of eight bits, float16 of a sum that is scaled."""
    rng = np.random.default_rng(3)
    shapes = [(4, 8), (8, 3)] if op_type == "MatMul" else [(2, 8, 5, 5), (3, 8, 1, 1)]
    x, w = (rng.standard_normal(shape).astype(_NUMPY[number]) for shape in shapes)
    inits = [numpy_helper.from_array(w, "w")]
    if exponent is not None:
        inits.append(numpy_helper.from_array(np.array(exponent, np.int32), "e"))
    names = ["x", "w"] if exponent is None else ["x", "w", "e"]
    value = helper.make_tensor_value_info
    shape = (4, 3) if op_type == "MatMul" else (2, 3, 5, 5)
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"])], "g", [value("x", number, x.shape)],
        [value("y", _T.FLOAT16, shape)], inits,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    program = popc_runtime.load(popc.compile(model).save(tmp_path / "p.popx"))
    a, b = x.astype(np.float32), w.astype(np.float32)
    exact = a @ b if op_type == "MatMul" else np.einsum("nchw,mc->nmhw", a, b[:, :, 0, 0])
    expected = (exact * 2.0 ** (exponent or 0)).astype(np.float16)
    for fed in (x, x.view(np.uint8)):  # numbers of ml_dtypes, or their codes
        found = program.run({"x": fed})["y"]
        # sums of eight exact products in float32, then one rounding
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@_FORMATS
def test_exponents_with_which_every_number_is_a_half(number: int) -> None:
    """Products are in half precision with these, and one beyond would lose a number."""
    codes = _ALL.view(_NUMPY[number]).astype(np.float64)

    def is_exact(exponent: int) -> bool:
        scaled = codes * 2.0**exponent
        with np.errstate(over="ignore"):
            return np.array_equal(scaled.astype(np.float16).astype(np.float64), scaled, True)  # noqa: FBT003

    assert [exponent for exponent in range(-32, 32) if is_exact(exponent)] == list(
        EXACT_HALVES[_dtype(number)]
    )


def test_what_computes_refuses_them() -> None:
    x = np.ones(3, ml_dtypes.float8_e4m3fn)
    with pytest.raises(ModelError, match="but may be int8, int16"):
        run_op("Add", [x, x], opset=23)
    with pytest.raises(ModelError, match="not computed with: dequantise, or cast"):
        run_op("Square", [x], domain="ai.graphcore")
    with pytest.raises(ModelError, match="needs both of them"):
        run_op("MatMul", [x, x.astype(np.float32)], opset=23)


def test_a_zero_point_is_zero() -> None:
    x, scale = np.ones(3, np.float32), np.float32(1)
    one = np.array(1, ml_dtypes.float8_e5m2)
    with pytest.raises(ModelError, match="zero point that is not 0"):
        run_op("QuantizeLinear", [x, np.asarray(scale), one], opset=21, constants=(2,))


@pytest.mark.parametrize("exponent", [-33, 32])
def test_exponents_have_limits(exponent: int) -> None:
    x = np.ones(3, np.float32)
    with pytest.raises(ModelError, match="expected -32 to 31"):
        run_op(
            "Pow2ScaleThenCast", [x, np.array(exponent, np.int32)], {"to": "FLOAT8_143"},
            domain="ai.graphcore", constants=(1,),
        )  # fmt: skip


@pytest.mark.parametrize("name", ["FLOAT8_143", "FLOAT8_152"])
def test_names_of_popart(name: str) -> None:
    x, exponent = np.array([0.3, -5, 1000], np.float32), np.array(-2, np.int32)
    (codes,) = run_op("Pow2ScaleThenCast", [x, exponent], {"to": name}, domain="ai.graphcore")
    number = _T.FLOAT8E4M3FNUZ if name == "FLOAT8_143" else _T.FLOAT8E5M2FNUZ
    np.testing.assert_array_equal(codes, to_float8(x / 4, _dtype(number)))
    narrow = codes.view(_NUMPY[number])
    (found,) = run_op(
        "CastThenPow2Scale", [narrow, -exponent], {"to": "FLOAT"}, domain="ai.graphcore"
    )
    np.testing.assert_array_equal(found, narrow.astype(np.float32) * 4)
