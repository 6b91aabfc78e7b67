"""Reductions and running reductions, against numpy and onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import assert_matches_onnxruntime, run_ir, run_op

_EXAMPLES = settings(max_examples=80, deadline=None)


def _log_sum_exp(x: Array, axes: tuple[int, ...]) -> Array:
    return np.asarray(np.log(np.sum(np.exp(x), axes)))


# In float64, so that the kernels' own accumulation is judged by something better.
_REFERENCE: Final[dict[str, Callable[[Array, tuple[int, ...]], Any]]] = {
    "ReduceL1": lambda x, axes: np.sum(np.abs(x), axes),
    "ReduceL2": lambda x, axes: np.sqrt(np.sum(x * x, axes)),
    "ReduceLogSum": lambda x, axes: np.log(np.sum(x, axes)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": np.max,
    "ReduceMean": np.mean,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
    "ReduceSumSquare": lambda x, axes: np.sum(x * x, axes),
}
_ALL: Final = sorted(_REFERENCE)


def _values(shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32, seed: int = 0) -> Array:
    values = np.random.default_rng(seed).uniform(0.5, 2.0, shape)
    return (values if np.dtype(dtype).kind == "f" else np.round(values * 3)).astype(dtype)


def _expected(op_type: str, x: Array, axes: tuple[int, ...]) -> Array:
    return np.asarray(_REFERENCE[op_type](x.astype(np.float64), axes))


@st.composite
def _reductions(draw: st.DrawFn) -> tuple[Array, tuple[int, ...]]:
    """A strided float32 array and a subset of its axes."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    x = _values(tuple(shape), seed=draw(st.integers(0, 9)))
    x = x.transpose(draw(st.permutations(range(x.ndim))))
    x = x[tuple(slice(None, None, draw(st.sampled_from([1, 1, -1, 2]))) for _ in shape)]
    x = np.broadcast_to(x, [3 if dim == 1 and draw(st.booleans()) else dim for dim in x.shape])
    return x, tuple(axis for axis in range(x.ndim) if draw(st.booleans()))


@_EXAMPLES
@given(reduction=_reductions(), op_type=st.sampled_from(_ALL), keepdims=st.booleans())
def test_reductions_of_strided_operands(
    reduction: tuple[Array, tuple[int, ...]], op_type: str, *, keepdims: bool
) -> None:
    x, axes = reduction
    (actual,) = run_ir(op_type, [x], {"axes": axes, "keepdims": int(keepdims)})
    expected = _expected(op_type, x, axes)
    if keepdims:
        expected = expected.reshape([1 if a in axes else n for a, n in enumerate(x.shape)])
    np.testing.assert_allclose(actual, expected.astype(np.float32), rtol=2e-6)


@pytest.mark.parametrize("op_type", _ALL)
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((300, 700), (1,)),
        ((300, 700), (0,)),
        ((210_000,), (0,)),
        ((3, 70_001), (1,)),
        ((70_001, 3), (0,)),
        ((2, 300, 9, 50), (0, 2)),
        ((1, 64, 40, 40), (2, 3)),
    ],
)
def test_large_operands(op_type: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = _values(shape)
    if op_type == "ReduceProd":
        x = np.where(x > 1, x.dtype.type(1), x.dtype.type(-1))
    (actual,) = run_ir(op_type, [x], {"axes": axes, "keepdims": 0})
    expected = _expected(op_type, x, axes).astype(np.float32)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize("op_type", _ALL)
@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "int64", "uint32", "bfloat16"])
def test_dtypes(op_type: str, dtype: str) -> None:
    element = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x = _values((3, 5, 4)).astype(element)
    (actual,) = run_op(op_type, [x, np.array([1])], opset=18, constants=[1])
    expected = np.expand_dims(_expected(op_type, x.astype(np.float64), (1,)), 1)
    if x.dtype.kind in "iu":
        expected = np.trunc(expected + 1e-9)
    rtol = {"float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-14}.get(dtype, 0.0)
    np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=rtol)


@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.bool_])
def test_extremes_of_small_types(op_type: str, dtype: npt.DTypeLike) -> None:
    x = np.array([[0, 1, 1], [0, 0, 0], [1, 1, 1]]).astype(dtype)
    assert_matches_onnxruntime(op_type, [x, np.array([1])], opset=20, constants=[1])


def test_mean_of_integers_truncates() -> None:
    x = np.array([[-7, 0], [7, 0], [2**40, 2**40 + 1]])
    (actual,) = run_ir("ReduceMean", [x], {"axes": (1,), "keepdims": 0})
    np.testing.assert_array_equal(actual, [-3, 3, 2**40])


@pytest.mark.parametrize("op_type", _ALL)
@pytest.mark.parametrize(("version", "given"), [(1, "axes"), (11, "axes"), (13, "axes"), (18, "")])
def test_axes_of_all_opsets(op_type: str, version: int, given: str) -> None:
    if op_type == "ReduceSum" and version == 13:
        given = ""
    x, axes = _values((2, 3, 4)), [0, 2] if version == 1 else [-1, 0]
    inputs, attributes = ([x], {given: axes}) if given else ([x, np.array(axes)], {})
    assert_matches_onnxruntime(op_type, inputs, attributes, opset=max(version, 7), constants=[1])


@pytest.mark.parametrize("op_type", ["ReduceL2", "ReduceLogSum", "ReduceMean", "ReduceSumSquare"])
@pytest.mark.parametrize("axes", [None, []])
def test_no_axes_mean_all_or_none(op_type: str, axes: list[int] | None) -> None:
    x = _values((2, 3))
    inputs = [x] if axes is None else [x, np.array(axes, np.int64)]
    everything = run_op(op_type, inputs, {"keepdims": 0}, opset=18, constants=[1])[0]
    np.testing.assert_allclose(everything, _expected(op_type, x, (0, 1)), rtol=1e-6)
    nothing = run_op(op_type, inputs, {"noop_with_empty_axes": 1}, opset=18, constants=[1])[0]
    np.testing.assert_allclose(nothing, _expected(op_type, x, ()), rtol=1e-6)


@pytest.mark.parametrize(
    ("op_type", "empty"),
    [
        ("ReduceL1", 0),
        ("ReduceL2", 0),
        ("ReduceLogSum", -np.inf),
        ("ReduceLogSumExp", -np.inf),
        ("ReduceMax", -np.inf),
        ("ReduceMean", np.nan),
        ("ReduceMin", np.inf),
        ("ReduceProd", 1),
        ("ReduceSum", 0),
        ("ReduceSumSquare", 0),
    ],
)
def test_empty_sets(op_type: str, empty: float) -> None:
    x = np.empty((2, 0, 3), np.float32)
    (actual,) = run_ir(op_type, [x], {"axes": (1,), "keepdims": 0})
    np.testing.assert_array_equal(actual, np.full((2, 3), empty, np.float32))
    assert run_ir(op_type, [x], {"axes": (0,), "keepdims": 0})[0].shape == (0, 3)


def test_axes_without_elements_need_no_value() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for keep in (0, 1):
        inputs: list[Array | None] = [x, np.array([], np.int64)]
        assert_matches_onnxruntime("ReduceSum", inputs, {"keepdims": keep}, opset=13)


def test_empty_sets_of_integers_and_scalars() -> None:
    x = np.empty((2, 0), np.int32)
    (actual,) = run_ir("ReduceMax", [x], {"axes": (1,), "keepdims": 0})
    np.testing.assert_array_equal(actual, [np.iinfo(np.int32).min] * 2)
    (actual,) = run_op("ReduceL1", [np.array(-3.0, np.float32)], opset=13)
    assert (actual.shape, float(actual)) == ((), 3.0)


def test_log_sum_exp_of_extreme_values() -> None:
    x = np.array([[1e4, 1e4], [-1e4, -1e4], [-np.inf, -np.inf], [np.inf, 0]], np.float32)
    (actual,) = run_ir("ReduceLogSumExp", [x], {"axes": (1,), "keepdims": 0})
    expected = [1e4 + np.log(2), -1e4 + np.log(2), -np.inf, np.inf]
    np.testing.assert_allclose(actual, np.array(expected, np.float32))


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int8])
def test_arg(op_type: str, last: int, axis: int, dtype: npt.DTypeLike) -> None:
    x = np.random.default_rng(0).integers(0, 4, (3, 5, 4)).astype(dtype)
    attributes = {"axis": axis, "select_last_index": last, "keepdims": last}
    assert_matches_onnxruntime(op_type, [x], attributes, opset=13)


def test_arg_of_strided_and_of_half_precision() -> None:
    x = np.random.default_rng(0).standard_normal((4, 5, 6)).astype(np.float16).T[::-1]
    attributes = {"axis": 1, "keepdims": 0, "select_last_index": 0}
    np.testing.assert_array_equal(run_ir("ArgMax", [x], attributes)[0], x.argmax(1))


def test_arg_over_nothing_is_an_error() -> None:
    with pytest.raises(ModelError, match="no elements"):
        run_ir("ArgMax", [np.empty((2, 0), np.float32)], {"axis": 1})


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("constants", [[], [1]])
def test_cum_sum(
    exclusive: int, reverse: int, axis: int, dtype: npt.DTypeLike, constants: list[int]
) -> None:
    inputs = [_values((3, 4, 5), dtype), np.array(axis)]
    attributes = {"exclusive": exclusive, "reverse": reverse}
    assert_matches_onnxruntime("CumSum", inputs, attributes, opset=14, constants=constants)


def test_cum_prod_in_half_precision_and_over_nothing() -> None:
    x = np.array([1.5, 2.0, -3.0], np.float16)
    (actual,) = run_ir("CumProd", [x], {"axis": 0, "exclusive": 1, "reverse": 1})
    np.testing.assert_array_equal(actual, np.array([-6.0, -3.0, 1.0], np.float16))
    for shape in ((0, 2), (2, 0)):
        empty = np.empty(shape, np.float32)
        assert run_ir("CumProd", [empty], {"axis": 0, "exclusive": 1})[0].shape == shape


@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_hardmax(opset: int, axis: int) -> None:
    x = np.random.default_rng(1).integers(0, 3, (2, 3, 4)).astype(np.float32)
    assert_matches_onnxruntime("Hardmax", [x], {"axis": axis}, opset=opset)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, -1])
def test_lp_normalization(p: int, axis: int) -> None:
    x = _values((3, 4)) - 1
    assert_matches_onnxruntime("LpNormalization", [x], {"p": p, "axis": axis})
    (zero,) = run_op("LpNormalization", [np.zeros((2, 2), np.float32)], {"p": p, "axis": axis})
    np.testing.assert_array_equal(zero, np.zeros((2, 2)))
