"""Softmax and LogSoftmax, against onnxruntime and numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import assert_matches_onnxruntime, run_ir

_BOTH = pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])


def _values(shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32, scale: float = 3.0) -> Array:
    return (np.random.default_rng(len(shape)).standard_normal(shape) * scale).astype(dtype)


def _expected(op_type: str, x: Array, axis: int) -> Array:
    wide = x.astype(np.float64)
    shifted = wide - wide.max(axis, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))
    return result if op_type == "LogSoftmax" else np.exp(result)


@_BOTH
@pytest.mark.parametrize("opset", [1, 7, 11, 13, 22])
@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -2])
def test_all_opsets(op_type: str, opset: int, axis: int) -> None:
    if opset < 11 and axis < 0:
        axis += 4
    x = _values((2, 3, 4, 5))
    assert_matches_onnxruntime(op_type, [x], {"axis": axis}, opset=max(opset, 7))


@_BOTH
@pytest.mark.parametrize("opset", [9, 11, 13])
def test_default_axis(op_type: str, opset: int) -> None:
    assert_matches_onnxruntime(op_type, [_values((2, 3, 4))], opset=opset)


@_BOTH
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_strided_operands(op_type: str, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    x = _values(tuple(shape)).transpose(data.draw(st.permutations(range(len(shape)))))
    x = x[tuple(slice(None, None, data.draw(st.sampled_from([1, -1, 2]))) for _ in shape)]
    axis = data.draw(st.integers(0, x.ndim - 1))
    (actual,) = run_ir(op_type, [x], {"axis": axis})
    np.testing.assert_allclose(actual, _expected(op_type, x, axis), rtol=3e-6, atol=1e-6)


@_BOTH
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((700, 130), 1), ((3, 70_000), 1), ((1, 5, 90, 200), 1), ((2, 70_000, 2), 1), ((300, 400), 0)],
)
def test_large_operands(op_type: str, shape: tuple[int, ...], axis: int) -> None:
    x = _values(shape)
    (actual,) = run_ir(op_type, [x], {"axis": axis})
    atol = 1e-9 if op_type == "Softmax" else 5e-6
    np.testing.assert_allclose(actual, _expected(op_type, x, axis), rtol=5e-6, atol=atol)


@_BOTH
@pytest.mark.parametrize(
    ("dtype", "rtol"), [(np.float16, 2e-3), (np.float32, 3e-6), (np.float64, 1e-13)]
)
@pytest.mark.parametrize("axis", [0, 1])
def test_dtypes(op_type: str, dtype: npt.DTypeLike, rtol: float, axis: int) -> None:
    x = _values((30, 40), dtype)
    (actual,) = run_ir(op_type, [x], {"axis": axis})
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, _expected(op_type, x, axis), rtol=rtol, atol=1e-6)


@_BOTH
@pytest.mark.parametrize("spread", [40.0, 60.0, 300.0, 1e4])
def test_rows_of_very_different_size(op_type: str, spread: float) -> None:
    x = _values((50, 20)) + np.linspace(-spread, spread, 50, dtype=np.float32)[:, None]
    (actual,) = run_ir(op_type, [x], {"axis": 1})
    np.testing.assert_allclose(actual, _expected(op_type, x, 1), rtol=6e-6, atol=1e-6)


@_BOTH
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_infinities_and_nan(op_type: str, dtype: npt.DTypeLike) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[0, 1, 2], [-inf, 0, -inf], [-inf] * 3, [inf, 0, 1], [nan, 0, 1]], dtype)
    (actual,) = run_ir(op_type, [x], {"axis": 1})
    with np.errstate(all="ignore"):
        expected = _expected(op_type, x, 1)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@_BOTH
def test_no_elements_and_bad_axes(op_type: str) -> None:
    assert run_ir(op_type, [np.empty((0, 3), np.float32)], {"axis": 1})[0].shape == (0, 3)
    assert run_ir(op_type, [np.empty((3, 0), np.float32)], {"axis": 1})[0].shape == (3, 0)
    with pytest.raises(ModelError, match="axis 2 is out of range"):
        run_ir(op_type, [np.empty((3, 3), np.float32)], {"axis": 2})
