"""ai.graphcore: elementwise operators, moves, new tensors; judged by numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pytest

import popc
from popc.frontend import find_unsupported, load_model
from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import import_graph, one_node_model, run_ir, run_op

_DOMAIN: Final = "ai.graphcore"
_RNG: Final = np.random.default_rng(3)
_X: Final = _RNG.uniform(-3, 3, (2, 3, 4)).astype(np.float32)
_Y: Final = _RNG.uniform(0.5, 2, (3, 1)).astype(np.float32)
_I: Final = np.array([[12, 10, -7], [5, -1, 127]], np.int32)
_J: Final = np.array([10, 3, 6], np.int32)


def _run(
    op_type: str, inputs: Sequence[Array | None], attributes: Mapping[str, Any] | None = None
) -> Array:
    return run_op(op_type, inputs, attributes, domain=_DOMAIN)[0]


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf)(x.astype(np.float64)))


_UNARY: Final[dict[str, Callable[[Array], Array]]] = {
    "Expm1": np.expm1,
    "Gelu": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "GeluErf": lambda x: x / 2 * (1 + _erf(x / math.sqrt(2))),
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "NearbyInt": np.round,
    "Nop": lambda x: x,
    "Round": np.round,
    "Square": lambda x: x * x,
    "Swish": lambda x: x / (1 + np.exp(-x)),
    "TensorRemap": lambda x: x,
}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("op_type", sorted(_UNARY))
def test_unary(op_type: str, dtype: Any) -> None:
    x = _X.astype(dtype)
    result = _run(op_type, [x])
    assert result.dtype == dtype
    expected = _UNARY[op_type](x.astype(np.float64))
    np.testing.assert_allclose(
        result,
        expected,
        rtol=2e-3 if dtype == np.float16 else 1e-5,
        atol=2e-3 if dtype == np.float16 else 1e-6,
    )


def test_log1p_is_exact_near_zero() -> None:
    x = np.array([1e-12, -0.5, 3.0])
    np.testing.assert_allclose(_run("Log1p", [x]), np.log1p(x), rtol=1e-15)
    np.testing.assert_allclose(_run("Expm1", [x]), np.expm1(x), rtol=1e-15)


@pytest.mark.parametrize("op_type", ["NearbyInt", "Round"])
def test_halves_are_rounded_to_the_even_number(op_type: str) -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32)
    np.testing.assert_array_equal(_run(op_type, [x]), [0, 2, 2, 0, -2])


_BINARY: Final[dict[str, tuple[Array, Array, Callable[[Array, Array], Array]]]] = {
    "Atan2": (_X, _Y - 1, np.arctan2),
    "BitwiseAnd": (_I, _J, np.bitwise_and),
    "BitwiseOr": (_I, _J, np.bitwise_or),
    "BitwiseXnor": (_I, _J, lambda a, b: ~(a ^ b)),
    "BitwiseXor": (_I, _J, np.bitwise_xor),
    "Fmod": (_X, _Y, np.fmod),
    "Remainder": (_X, -_Y, lambda a, b: a - np.floor(a / b) * b),
}


@pytest.mark.parametrize("op_type", sorted(_BINARY))
def test_binary(op_type: str) -> None:
    a, b, function = _BINARY[op_type]
    np.testing.assert_allclose(_run(op_type, [a, b]), function(a, b), rtol=1e-5, atol=1e-6)


def test_bitwise_not_of_unsigned_numbers() -> None:
    x = np.array([0, 5, 255], np.uint8)
    np.testing.assert_array_equal(_run("BitwiseNot", [x]), [255, 250, 0])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, np.uint32])
def test_increment_mod(dtype: Any) -> None:
    x = np.array([5, 10, 1, 2] if dtype == np.uint32 else [5, -5, 10, 1, 2]).astype(dtype)
    result = _run("IncrementMod", [x], {"increment": 3.0, "modulus": 4.0})
    np.testing.assert_array_equal(result, np.fmod(x.astype(float) + 3, 4))
    assert result.dtype == dtype


def test_scale() -> None:
    np.testing.assert_allclose(_run("Scale", [_X], {"scale": -2.5}), -2.5 * _X)
    np.testing.assert_array_equal(_run("Scale", [_I], {"scale": 3.0}), 3 * _I)
    with pytest.raises(ModelError, match=r"0\.5 cannot be represented in int32"):
        _run("Scale", [_I], {"scale": 0.5})


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scaled_add(dtype: Any) -> None:
    x, y = _X.astype(dtype), _X[::-1].astype(dtype)
    scale = np.array([0.25], dtype)
    tolerance = 4e-3 if dtype == np.float16 else 1e-6
    for inputs, expected in (
        ([x, y], 0.5 * x + 2 * y),
        ([x, y, None, scale], 0.5 * x + 0.25 * y),
        ([x, y, scale], 0.25 * x + 2 * y),
        ([x, y, scale, scale], 0.25 * x + 0.25 * y),
    ):
        result = _run("ScaledAdd", inputs, {"scale0": 0.5, "scale1": 2.0})
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(_run("ScaledAdd", [x, y]), x + y, rtol=tolerance)


def test_scaled_add_of_a_large_strided_operand() -> None:
    x = np.arange(3 << 16, dtype=np.float32).reshape(3, -1)
    y = np.ascontiguousarray(x.T).T[::-1]
    (result,) = run_ir("ScaledAdd", [x, y, None, None], {"scale0": 3.0, "scale1": -1.0})
    np.testing.assert_array_equal(result, 3 * x - y)


# -- moves -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op_type", "attributes", "expected"),
    [
        ("Reshape", {"shape": [4, -1]}, _X.reshape(4, 6)),
        ("Reshape", {"shape": [0, 12]}, _X.reshape(2, 12)),
        ("Reverse", {"dimensions": [0, 2]}, _X[::-1, :, ::-1]),
        ("Reverse", {}, _X),
        ("Slice", {"starts": [1, -3], "ends": [3, 9], "axes": [1, 2]}, _X[:, 1:3, -3:]),
        ("Slice", {"starts": [1], "ends": [2]}, _X[1:2]),
        ("Subsample", {"strides": [1, 2, 3]}, _X[:, ::2, ::3]),
        ("ZerosLike", {}, np.zeros_like(_X)),
    ],
)
def test_moves(op_type: str, attributes: Mapping[str, Any], expected: Array) -> None:
    result = _run(op_type, [_X], attributes)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"nearest_mode": "pytorch"}, [0, 2, 5, 8]),
        ({"nearest_mode": "ceil"}, [1, 4, 7, 9]),
        ({}, [1, 3, 6, 9]),
        ({"mode": "linear"}, [5 / 6, 3.5, 37 / 6, 53 / 6]),
    ],
)
def test_resize(attributes: Mapping[str, Any], expected: list[float]) -> None:
    operands = [np.arange(11, dtype=np.float32), np.array([3 / 8], np.float32)]
    (result,) = run_op("Resize", operands, attributes, domain=_DOMAIN, constants=(1,))
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode: str) -> None:
    x = np.arange(2 * 8 * 3 * 2, dtype=np.float32).reshape(2, 8, 3, 2)
    result = _run("DepthToSpace", [x], {"blocksize": 2, "mode": mode})
    split = x.reshape(2, 2, 2, 2, 3, 2)
    perm = (0, 1, 4, 2, 5, 3) if mode == "CRD" else (0, 3, 4, 1, 5, 2)
    np.testing.assert_array_equal(result, split.transpose(perm).reshape(2, 2, 6, 4))


def test_subsample_of_several_operands() -> None:
    results = run_op("Subsample", [_X, -_X], {"strides": [2, 1, 2]}, outputs=2, domain=_DOMAIN)
    np.testing.assert_array_equal(results[0], _X[::2, :, ::2])
    np.testing.assert_array_equal(results[1], -_X[::2, :, ::2])


def test_new_tensors() -> None:
    result = _run("Init", [], {"shape": [2, 3], "data_type": 12, "init_type": 1})
    assert (result.dtype.name, result.shape) == ("float16", (2, 3))
    result = _run("Zeros", [], {"shape": [4], "dtype": 6})
    assert (result.dtype.name, result.tolist()) == ("int32", [0, 0, 0, 0])


@pytest.mark.parametrize(
    ("dimension", "factor"), [("a_columns", 2), ("a_rows_b_columns", 3), ("b_rows", 5)]
)
def test_serialized_matmul(dimension: str, factor: int) -> None:
    a, b = _RNG.standard_normal((2, 6, 4)), _RNG.standard_normal((2, 5, 6))
    attributes = {
        "serialization_dimension": dimension,
        "serialization_factor": factor,
        "transpose_a": 1,
        "transpose_b": 1,
    }
    result = _run("SerializedMatMul", [a, b], attributes)
    np.testing.assert_allclose(result, np.swapaxes(a, 1, 2) @ np.swapaxes(b, 1, 2))
    with pytest.raises(ModelError, match="cannot be cut into 7 parts"):
        _run("SerializedMatMul", [a, b], {**attributes, "serialization_factor": 7})


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "parts"),
    [
        (
            "SerializedMatMul",
            [np.ones((4, 6)), np.ones((6, 5))],
            {"serialization_dimension": "b_rows", "serialization_factor": 5},
            "MatMul(",
        ),
        (
            "EmbeddingLookup",
            [np.ones((10, 4)), np.arange(3)],
            {"serialization_factor": 5},
            "Gather(",
        ),
    ],
)
def test_serialised_products_and_lookups_are_cut(
    op_type: str, inputs: list[Array], attributes: dict[str, Any], parts: str
) -> None:
    texts: dict[str, str] = {}
    model = one_node_model(op_type, inputs, attributes, domain=_DOMAIN)
    popc.compile(model, on_artefact=lambda stage, text: texts.update({str(stage): text}))
    assert texts["transform"].count(parts) == 5


def test_annotations_of_other_domains_are_no_obstacle() -> None:
    a, b = _RNG.standard_normal((4, 6)), _RNG.standard_normal((6, 5))
    annotations = {
        "__serialize_matmul_mode": "input_channels",
        "__serialize_matmul_factor": 2,
        "__available_memory": 0.3,
    }
    np.testing.assert_allclose(run_op("MatMul", [a, b], annotations)[0], a @ b)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "message"),
    [
        ("Atan2", [_X], {}, "Atan2 takes 2 inputs, but 1 are given"),
        ("ScaledAdd", [_X] * 5, {}, "ScaledAdd takes 2 to 4 inputs, but 5 are given"),
        ("Atan2", [_X, _I], {}, "one element type, not float32 and int32"),
        ("BitwiseAnd", [_X, _X], {}, "float32 is not allowed"),
        ("Scale", [_X], {}, "attribute 'scale' is required but missing"),
        ("Scale", [_X], {"scale": "2"}, "attribute 'scale' must be a number"),
        (
            "IncrementMod",
            [_I.astype(np.uint8)],
            {"increment": -1.0, "modulus": 4.0},
            "cannot be represented in uint8",
        ),
        ("Reverse", [_X], {"dimensions": [3]}, "axis 3 is out of range for rank 3"),
        ("Reverse", [_X], {"dimensions": [1, 1]}, "not distinct"),
        ("Subsample", [_X], {"strides": [1, 0, 1]}, "do not fit"),
        ("Init", [], {"shape": [2], "data_type": 99, "init_type": 0}, "data_type 99"),
        ("Zeros", [], {"shape": [-1]}, "negative dimension"),
        ("ScaledAdd", [_X, _Y], {}, "must have one type"),
        ("ScaledAdd", [_X, _X, _Y], {}, "a scale must be one floating-point number"),
    ],
)
def test_wrong_operands_and_attributes_are_refused(
    op_type: str, inputs: list[Array], attributes: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        import_graph(one_node_model(op_type, inputs, attributes, domain=_DOMAIN))


def test_an_unknown_operator_of_the_domain_is_named_with_its_nearest() -> None:
    model = load_model(one_node_model("ScatterRedcue", [_X], domain=_DOMAIN))
    (row,) = find_unsupported(model)
    assert row.reason == "there is no such operator; did you mean 'ScatterReduce'?"
