"""Gradients far out, at zeros and at ties: never nan, and the limits that calculus says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from popc.autodiff import differentiate
from popc.ir import Graph, TensorType
from popc.ops.build import build
from popc_runtime.format import Array, Attribute, DType
from tests.support.oracles import run_graph

_TYPES: Final = {
    DType.FLOAT16: np.float16,
    DType.BFLOAT16: ml_dtypes.bfloat16,
    DType.FLOAT32: np.float32,
    DType.FLOAT64: np.float64,
}
_ALL_TYPES: Final = pytest.mark.parametrize("dtype", _TYPES)


def _gradients(
    op_type: str,
    operands: Sequence[npt.ArrayLike],
    attributes: Mapping[str, Attribute] | None = None,
    dtype: DType = DType.FLOAT32,
    grad: npt.ArrayLike = 1.0,
) -> list[Array]:
    """The gradients of all operands, where that of the first result is ``grad`` everywhere."""
    graph = Graph("extreme")
    feeds: dict[str, Array] = {}
    inputs = []
    for operand in operands:
        array = np.asarray(operand, np.float64).astype(_TYPES[dtype])
        inputs.append(graph.add_input("x", TensorType(dtype, array.shape)))
        feeds[inputs[-1].name] = array
    result = build(graph, op_type, inputs, dict(attributes or {})).outputs[0]
    seed = graph.add_input("g", result.type)
    found = differentiate(graph, {result: seed}, inputs)
    feeds[seed.name] = np.full(result.type.shape, grad).astype(_TYPES[dtype])
    graph.outputs = [found[tensor] for tensor in inputs]
    return [array.astype(np.float64) for array in run_graph(graph, feeds)]


def _far(dtype: DType) -> list[float]:
    """Numbers from which on these functions are as good as straight."""
    sizes = [110.0, 1e3, 6e4]
    if dtype is not DType.FLOAT16:
        sizes += [1e10, 1e19, 1e30, 3.3e38]
    if dtype is DType.FLOAT64:
        sizes += [1e160, 1e300]
    return sizes


# Op, attributes, slopes far below and far above zero
_ENDS: Final[tuple[tuple[str, dict[str, Attribute], float, float], ...]] = (
    ("Abs", {}, -1, 1),
    ("Atan", {}, 0, 0),
    ("Asinh", {}, 0, 0),
    ("Celu", {"alpha": 0.5}, 0, 1),
    ("Clip", {"min": -2.0, "max": 2.0}, 0, 0),
    ("Elu", {"alpha": 1.5}, 0, 1),
    ("Erf", {}, 0, 0),
    ("Expm1", {}, 0, inf),
    ("Exp", {}, 0, inf),
    ("FakeQuantize", {"scale": 0.1, "low": -128.0, "high": 127.0}, 0, 0),
    ("Gelu", {"approximate": "none"}, 0, 1),
    ("Gelu", {"approximate": "tanh"}, 0, 1),
    ("HardSigmoid", {"alpha": 0.2, "beta": 0.5}, 0, 0),
    ("HardSwish", {}, 0, 1),
    ("LeakyRelu", {"alpha": 0.25}, 0.25, 1),
    ("Mish", {}, 0, 1),
    ("Relu", {}, 0, 1),
    ("Selu", {"alpha": 1.5, "gamma": 1.25}, 0, 1.25),
    ("Shrink", {"bias": 0.5, "lambd": 0.5}, 1, 1),
    ("Sigmoid", {}, 0, 0),
    ("Softplus", {}, 0, 1),
    ("Softsign", {}, 0, 0),
    ("Swish", {"alpha": 1.0}, 0, 1),
    ("Swish", {"alpha": 3.0}, 0, 1),
    ("Tanh", {}, 0, 0),
    ("ThresholdedRelu", {"alpha": 1.0}, 0, 1),
)


@_ALL_TYPES
@pytest.mark.parametrize(("op_type", "attributes", "below", "above"), _ENDS)
def test_far_out(
    op_type: str, attributes: dict[str, Attribute], below: float, above: float, dtype: DType
) -> None:
    sizes = np.array(_far(dtype))
    (grad,) = _gradients(op_type, [np.concatenate([-sizes, sizes])], attributes, dtype)
    expected = np.repeat([below, above], sizes.size)
    finite = np.isfinite(expected)
    np.testing.assert_allclose(grad[finite], expected[finite], rtol=1e-2, atol=1.3e-2)
    assert (grad[~finite] > 1e4).all()


@pytest.mark.parametrize("op_type", ["Acos", "Asin", "Atanh", "Log", "Log1p", "Reciprocal", "Sqrt"])
def test_infinite_slopes(op_type: str) -> None:
    x = {"Acos": 1.0, "Asin": 1.0, "Atanh": 1.0, "Log1p": -1.0}.get(op_type, 0.0)
    (grad,) = _gradients(op_type, [[x]])
    assert grad.tolist() == [-inf if op_type in ("Acos", "Reciprocal") else inf]


@_ALL_TYPES
@pytest.mark.parametrize(
    ("op_type", "attributes", "slope"),
    [
        ("Abs", {}, 0),
        ("Celu", {"alpha": 2.0}, 1),
        ("Clip", {"min": 0.0, "max": 6.0}, 0),
        ("Elu", {"alpha": 2.0}, 2),
        ("HardSwish", {}, 0.5),
        ("LeakyRelu", {"alpha": 0.25}, 0.25),
        ("Relu", {}, 0),
        ("Selu", {"alpha": 2.0, "gamma": 1.5}, 3),
        ("Sign", {}, 0),
        ("Square", {}, 0),
        ("Tanh", {}, 1),
    ],
)
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zero(
    op_type: str, attributes: dict[str, Attribute], slope: float, zero: float, dtype: DType
) -> None:
    (grad,) = _gradients(op_type, [[zero]], attributes, dtype)
    assert grad.tolist() == [slope]


@pytest.mark.parametrize("name", ["infinite", "not a number"])
@pytest.mark.parametrize(
    ("op_type", "attributes", "x"),
    [
        ("Clip", {"min": -1.0, "max": 1.0}, 5.0),
        ("Relu", {}, -5.0),
        ("Shrink", {"lambd": 0.5, "bias": 0.0}, 0.1),
        ("ThresholdedRelu", {"alpha": 1.0}, 0.5),
    ],
)
def test_a_chosen_zero_stops_every_gradient(
    op_type: str, attributes: dict[str, Attribute], x: float, name: str
) -> None:
    (grad,) = _gradients(op_type, [[x]], attributes, grad=inf if name == "infinite" else np.nan)
    assert grad.tolist() == [0]


_ROWS: Final = (
    [0.0, 0.0, 0.0],
    [6e4, 0.0, -6e4],
    [6e4, 6e4, 6e4],
    [-6e4, -6e4, -6e4],
    [-inf, 0.0, 1.0],
    [-inf, -inf, 0.0],
)


def _softmax(row: Sequence[float]) -> Array:
    x = np.array(row)
    powers = np.exp(x - x.max())
    return np.asarray(powers / powers.sum())


@_ALL_TYPES
@pytest.mark.parametrize("row", _ROWS, ids=str)
def test_softmax(row: list[float], dtype: DType) -> None:
    weights = np.array([0.5, -1.0, 2.0])
    y = _softmax(row)
    expected = {
        "Softmax": y * (weights - (weights * y).sum()),
        "LogSoftmax": weights - y * weights.sum(),
    }
    for op_type, wanted in expected.items():
        (grad,) = _gradients(op_type, [row], {"axis": 0}, dtype, grad=weights)
        np.testing.assert_allclose(grad, wanted, atol=1e-2)
    (grad,) = _gradients("ReduceLogSumExp", [row], {"axes": (0,), "keepdims": 0}, dtype)
    np.testing.assert_allclose(grad, y, atol=1e-2)


_ALL: Final[dict[str, Attribute]] = {"axes": (0,), "keepdims": 0}


@_ALL_TYPES
@pytest.mark.parametrize(
    ("op_type", "x", "expected"),
    [
        ("ReduceL1", [0.0, -2.0, 0.0], [0, -1, 0]),
        ("ReduceL2", [0.0, 0.0, 0.0], [0, 0, 0]),
        ("ReduceL2", [3.0, 0.0, -4.0], [0.6, 0, -0.8]),
        ("ReduceLogSumExp", [-inf, -inf, -inf], [0, 0, 0]),
        ("ReduceMax", [1.0, 1.0, 0.0], [0.5, 0.5, 0]),
        ("ReduceMax", [inf, 1.0, inf], [0.5, 0, 0.5]),
        ("ReduceMin", [-inf, 1.0, 0.0], [1, 0, 0]),
        ("ReduceProd", [0.0, 2.0, 3.0], [6, 0, 0]),
        ("ReduceProd", [0.0, 0.0, 3.0], [0, 0, 0]),
        ("ReduceSumSquare", [0.0, 1.0, 0.0], [0, 2, 0]),
    ],
)
def test_reductions(op_type: str, x: list[float], expected: list[float], dtype: DType) -> None:
    (grad,) = _gradients(op_type, [x], _ALL, dtype)
    np.testing.assert_allclose(grad, expected, rtol=1e-2)


def test_many_ties_in_half_precision() -> None:
    """More than float16 can count."""
    (grad,) = _gradients("ReduceMax", [np.zeros(1 << 17)], _ALL, DType.FLOAT16)
    np.testing.assert_allclose(grad, 2.0**-17, rtol=1e-3)


@pytest.mark.parametrize(
    ("op_type", "operands", "expected"),
    [
        ("Max", ([2.0, -1.0, 0.0], [2.0, 0.0, -inf]), ([0.5, 0, 1], [0.5, 1, 0])),
        ("Min", ([2.0, -1.0, 0.0], [2.0, 0.0, -inf]), ([0.5, 1, 0], [0.5, 0, 1])),
        ("Div", ([1.0, 0.0], [3e38, 3e38]), ([1 / 3e38, 1 / 3e38], [0, 0])),
        ("Pow", ([0.0, 0.0, 0.0], [0.0, 1.0, 2.0]), ([0, 1, 0], [0, 0, 0])),
        ("Pow", ([0.0, 1e30], [0.5, 0.0]), ([inf, 0], [0, 69.0776])),
    ],
)
def test_two_operands(
    op_type: str, operands: tuple[list[float], ...], expected: tuple[list[float], ...]
) -> None:
    for grad, wanted in zip(_gradients(op_type, operands), expected, strict=True):
        np.testing.assert_allclose(grad, wanted, rtol=1e-4)


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_running_product_of_zeros(exclusive: int, reverse: int) -> None:
    x: Any = [0.0, 2.0, 0.0, 0.0]
    attributes: dict[str, Attribute] = {"axis": 0, "exclusive": exclusive, "reverse": reverse}
    (grad,) = _gradients("CumProd", [x], attributes)
    assert np.isfinite(grad).all()
