"""Activations: against independent formulas in float64, in all element types and at the ends."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, sqrt
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from popc.ir import TensorType
from popc.ops.build import infer_types
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attribute, DType
from popc_runtime.kernels import Scratch
from popc_runtime.kernels.activation import ACTIVATIONS, activation_calls
from popc_runtime.kernels.core.families import ACTIVATION_NAMES
from tests.support.oracles import assert_matches_onnxruntime, epsilon, run_ir, run_op

_RNG = np.random.default_rng(3)
_ERF = np.vectorize(erf, otypes=[np.float64])

_Case = tuple[dict[str, Attribute], Callable[[Array], Array]]


def _sigmoid(x: Array) -> Array:
    tail = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, tail) / (1 + tail))


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(0, x))


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


_CASES: dict[str, _Case] = {
    "Celu": ({"alpha": 2.0}, lambda x: np.where(x > 0, x, 2 * np.expm1(x / 2))),
    "Clip": ({"min": -1.0, "max": 2.0}, lambda x: np.clip(x, -1, 2)),
    "Clip:low": ({"min": -1.0}, lambda x: np.maximum(x, -1)),
    "Clip:high": ({"max": 1.0}, lambda x: np.minimum(x, 1)),
    "Clip:crossed": ({"min": 2.0, "max": -1.0}, lambda x: np.minimum(np.maximum(x, 2), -1)),
    "Elu": ({"alpha": 1.5}, lambda x: np.where(x > 0, x, 1.5 * np.expm1(x))),
    "Erf": ({}, _ERF),
    "Gelu": ({"approximate": "none"}, lambda x: 0.5 * x * (1 + _ERF(x / sqrt(2)))),
    "Gelu:tanh": ({"approximate": "tanh"}, _gelu_tanh),
    "HardSigmoid": ({"alpha": 0.25, "beta": 0.5}, lambda x: np.clip(0.25 * x + 0.5, 0, 1)),
    "HardSwish": ({}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "LeakyRelu": ({"alpha": 0.125}, lambda x: np.where(x > 0, x, 0.125 * x)),
    "LeakyRelu:steep": ({"alpha": 2.0}, lambda x: np.where(x > 0, x, 2 * x)),
    "LeakyRelu:folding": ({"alpha": -0.5}, lambda x: np.where(x > 0, x, -0.5 * x)),
    "Mish": ({}, lambda x: x * np.tanh(_softplus(x))),
    "Relu": ({}, lambda x: np.maximum(x, 0)),
    "Selu": (
        {"alpha": 1.75, "gamma": 1.125},
        lambda x: 1.125 * np.where(x > 0, x, 1.75 * np.expm1(x)),
    ),
    "Shrink": (
        {"lambd": 0.5, "bias": 0.25},
        lambda x: np.select([x < -0.5, x > 0.5], [x + 0.25, x - 0.25], 0.0),
    ),
    "Sigmoid": ({}, _sigmoid),
    "Softplus": ({}, _softplus),
    "Softsign": ({}, lambda x: x / (1 + np.abs(x))),
    "Swish": ({"alpha": 1.5}, lambda x: x * _sigmoid(1.5 * x)),
    "Tanh": ({}, np.tanh),
    "ThresholdedRelu": ({"alpha": 0.75}, lambda x: np.where(x > 0.75, x, 0)),
}


def test_every_activation_has_a_case() -> None:
    names = {name.partition(":")[0] for name in _CASES}
    assert names == set(ACTIVATIONS) - {"FakeQuantize"}  # see test_quantize


def test_every_activation_is_listed() -> None:
    assert set(ACTIVATIONS) == ACTIVATION_NAMES


_FLOATS = (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)
_TYPES = {"Celu": _FLOATS[1:2], "Shrink": _FLOATS[:3]}  # what opset 24 allows; others: all


@pytest.mark.parametrize(
    ("case", "dtype"),
    [(case, dtype) for case in _CASES for dtype in _TYPES.get(case, _FLOATS)],
)
def test_values(case: str, dtype: Any) -> None:
    attributes, function = _CASES[case]
    name = case.partition(":")[0]
    step = epsilon(dtype)
    x = np.concatenate([_RNG.normal(size=500) * 3, [0, -0.5, 0.5, 30, -30, 300, -300]])
    x = np.broadcast_to(x.astype(dtype), (3, x.size)).T
    if name == "Clip":
        bounds = [np.array(attributes[key], dtype) for key in ("min", "max") if key in attributes]
        operands = [x, *([None] if "min" not in attributes else []), *bounds]
        (actual,) = run_op(name, operands, constants={1, 2})
    else:
        (actual,) = run_op(name, [x], attributes, opset=24)
    assert actual.shape == x.shape
    expected = function(x.astype(np.float64))
    np.testing.assert_allclose(
        actual.astype(np.float64), expected, rtol=4 * step, atol=min(2 * step, 1e-3)
    )


@pytest.mark.parametrize("case", _CASES)
def test_large_arguments_and_nan(case: str) -> None:
    attributes, function = _CASES[case]
    x = np.array([1e30, -1e30, 3e38, -3e38, np.nan], np.float32)
    (actual,) = run_ir(case.partition(":")[0], [x], attributes)
    with np.errstate(all="ignore"):
        expected = function(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize("case", _CASES)
@pytest.mark.parametrize("result", [np.float16, np.float32])
def test_as_epilogue(case: str, result: Any) -> None:
    """In place, over several blocks, and from float32 sums into a float16 result."""
    attributes, function = _CASES[case]
    sums = (_RNG.normal(size=(5, 10000)) * 3).astype(np.float32)
    expected = function(sums.astype(np.float64))
    out = sums if result is np.float32 else np.empty(sums.shape, result)
    with np.errstate(all="ignore"):
        for call in activation_calls(case.partition(":")[0], attributes, sums, out, Scratch()):
            call()
    tolerance = 1e-6 if result is np.float32 else 2e-3
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erf_is_accurate(dtype: Any) -> None:
    x = np.concatenate([np.linspace(-7, 7, 20001), np.logspace(-30, -1, 500)]).astype(dtype)
    (actual,) = run_op("Erf", [x])
    expected = _ERF(x.astype(np.float64))
    bounds = (1.6e-7, 3e-7) if dtype == np.float32 else (3e-16, 6e-16)
    assert np.abs(actual - expected).max() < bounds[0]
    assert np.abs(actual / np.where(expected == 0, 1, expected) - (expected != 0)).max() < bounds[1]


@pytest.mark.parametrize("name", sorted(set(ACTIVATIONS) - {"Clip", "FakeQuantize", "Swish"}))
def test_defaults_match_onnxruntime(name: str) -> None:
    x = (_RNG.normal(size=(2, 3, 50)) * 3).astype(np.float32)
    assert_matches_onnxruntime(name, [x], rtol=2e-6)


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Selu", {1: (1.6732, 1.0507), 6: (1.67326319, 1.05070102)}),
        ("Elu", {1: (1.0, 1.0), 6: (1.0, 1.0)}),
    ],
)
def test_defaults_of_old_opsets(
    name: str, expected: dict[int, tuple[float, float]], opset: int
) -> None:
    alpha, gamma = expected[opset]
    x = np.array([-2, -0.5, 0, 3], np.float32)
    (actual,) = run_op(name, [x], opset=opset)
    np.testing.assert_allclose(actual, gamma * np.where(x > 0, x, alpha * np.expm1(x)), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_integers(dtype: str) -> None:
    x = np.array([0, 1, 5, 100], dtype)
    if dtype.startswith("int"):
        x = np.concatenate([x, -x])
        np.testing.assert_array_equal(run_op("Relu", [x])[0], np.maximum(x, 0))
    bounds = [np.array(2, dtype), np.array(7, dtype)]
    np.testing.assert_array_equal(run_op("Clip", [x, *bounds], constants={1, 2})[0], x.clip(2, 7))
    shrunk = run_op("Shrink", [x], {"lambd": 1.5, "bias": 1.0})[0]
    wide = x.astype(np.int64)
    np.testing.assert_array_equal(shrunk, np.where(np.abs(wide) > 1, wide - np.sign(wide), 0))


@pytest.mark.parametrize("constants", [set(), {1}, {2}, {1, 2}])
@pytest.mark.parametrize("bounds", [(-1, 1), (1, -1), (-1, None), (None, 1), (None, None)])
@pytest.mark.parametrize("rank", [0, 1])
def test_clip_bounds(bounds: tuple[int | None, int | None], constants: set[int], rank: int) -> None:
    x = _RNG.normal(size=()).astype(np.float32)
    operands = [None if b is None else np.full((1,) * rank, b, np.float32) for b in bounds]
    (actual,) = run_op("Clip", [x, *operands], constants=constants)
    expected = x
    if bounds[0] is not None:
        expected = np.maximum(expected, np.float32(bounds[0]))
    if bounds[1] is not None:
        expected = np.minimum(expected, np.float32(bounds[1]))
    assert actual.shape == ()
    assert actual == expected


@pytest.mark.parametrize("opset", [1, 6, 10])
@pytest.mark.parametrize("attributes", [{}, {"min": -0.5}, {"max": 0.5}, {"min": 0.0, "max": 6.0}])
def test_clip_by_attributes(attributes: dict[str, float], opset: int) -> None:
    x = (_RNG.normal(size=(3, 4)) * 5).astype(np.float32)
    (actual,) = run_op("Clip", [x], attributes, opset=opset)
    expected = x.clip(attributes.get("min", -np.inf), attributes.get("max", np.inf))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.uint32])
@pytest.mark.parametrize("shape", [(), (1,), (4,), (3, 1), (2, 3, 4)])
@pytest.mark.parametrize("constants", [set(), {1}])
def test_prelu(dtype: Any, shape: tuple[int, ...], constants: set[int]) -> None:
    x = (_RNG.normal(size=(2, 3, 4)) * 4).astype(np.int8).astype(dtype)
    for slope in (_RNG.uniform(0.1, 1, shape), np.full(shape, 2), np.full(shape, 0)):
        operands = [x, slope.astype(dtype)]
        (actual,) = run_op("PRelu", operands, constants=constants)
        np.testing.assert_allclose(actual, np.where(x < 0, x * operands[1], x), rtol=1e-3)


def test_prelu_per_channel_before_opset_7() -> None:
    x = _RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
    slope = np.array([0.1, 0.2, 3], np.float32)
    (actual,) = run_op("PRelu", [x, slope], opset=6)
    np.testing.assert_allclose(actual, np.where(x < 0, x * slope[:, None, None], x), rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1)])
@pytest.mark.parametrize("name", ["Relu", "Sigmoid", "Gelu", "Shrink", "Erf"])
def test_empty_and_scalar(name: str, shape: tuple[int, ...]) -> None:
    for dtype in (np.float16, np.float32, np.float64):
        (actual,) = run_op(name, [np.zeros(shape, dtype)])
        assert actual.shape == shape
        assert np.all(actual == (0.5 if name == "Sigmoid" else 0))


@pytest.mark.parametrize(
    ("name", "operands", "message"),
    [
        ("Sigmoid", [TensorType(DType.INT32, (2,))], "int32 is not allowed"),
        ("Relu", [TensorType(DType.BOOL, (2,))], "bool is not allowed"),
        (
            "PRelu",
            [TensorType(DType.FLOAT32, (2,)), TensorType(DType.FLOAT32, (3, 2))],
            "does not fit",
        ),
    ],
)
def test_refusals(name: str, operands: list[TensorType], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        infer_types(name, operands, {})
