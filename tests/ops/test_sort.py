"""Top-k and unique values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import assert_matches_onnxruntime, one_node_model, run_ir, run_op
from tests.support.sized import compare

_RNG = np.random.default_rng(4)
_EVERY_TYPE = [
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
]


def _expected(x: Array, k: int, axis: int, largest: int) -> tuple[Array, Array]:
    """A stable sort of Python numbers, which have no limits to fall over."""
    rows = np.moveaxis(x, axis, -1)
    sign = -1 if largest else 1
    order = np.empty((*rows.shape[:-1], k), np.int64)
    for place in np.ndindex(rows.shape[:-1]):
        row = rows[place].tolist()
        order[place] = sorted(range(len(row)), key=lambda i, row=row: sign * row[i])[:k]  # type: ignore[misc]
    values = np.take_along_axis(rows, order, -1)
    return np.moveaxis(values, -1, axis), np.moveaxis(order, -1, axis)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_top_k_of_every_type(data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(_EVERY_TYPE)))
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    edges: list[float] = [0, 1, 2]
    if dtype.kind == "f":
        edges += [-0.0, -1.5, np.inf, -np.inf]
    else:
        low = -(2 ** (8 * dtype.itemsize - 1)) if dtype.kind == "i" else 0
        edges += [low, low + 2 ** (8 * dtype.itemsize) - 1]
    count = int(np.prod(shape))
    values = data.draw(st.lists(st.sampled_from(edges), min_size=count, max_size=count))
    x = np.array(values, dtype).reshape(shape)
    axis = data.draw(st.integers(0, len(shape) - 1))
    k = data.draw(st.integers(0, shape[axis]))
    largest = data.draw(st.integers(0, 1))
    got = run_ir("TopK", [x], {"axis": axis, "k": k, "largest": largest})
    for actual, wanted in zip(got, _expected(x, k, axis, largest), strict=True):
        np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize("k", [1, 5, 70, 100])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k(k: int, axis: int, largest: int) -> None:
    x = _RNG.normal(size=(100, 100)).astype(np.float32)
    attributes = {"axis": axis, "largest": largest}
    assert_matches_onnxruntime("TopK", [x, np.array([k])], attributes, outputs=2, constants=[1])


@pytest.mark.parametrize(
    ("opset", "attributes"), [(1, {"k": 2}), (10, {"axis": 0}), (11, {"sorted": 0, "axis": 1})]
)
def test_top_k_of_older_opsets(opset: int, attributes: dict[str, int]) -> None:
    x = _RNG.permutation(12).reshape(3, 4).astype(np.float32)
    operands: list[Array | None] = [x] if opset < 10 else [x, np.array([2])]
    axis = attributes.get("axis", -1)
    got = run_op("TopK", operands, attributes, opset=opset, outputs=2, constants=[1])
    for actual, wanted in zip(got, _expected(x, 2, axis, 1), strict=True):
        np.testing.assert_array_equal(actual, wanted)


def test_top_k_of_strided_and_bfloat16_operands() -> None:
    x = _RNG.permutation(60).reshape(5, 12).astype(np.float32)
    values, indices = run_ir("TopK", [x.T[::-2]], {"axis": 0, "k": 2, "largest": 1})
    wanted = _expected(np.ascontiguousarray(x.T[::-2]), 2, 0, 1)
    np.testing.assert_array_equal(values, wanted[0])
    np.testing.assert_array_equal(indices, wanted[1])
    (values, _) = run_op(
        "TopK", [x.astype(ml_dtypes.bfloat16), np.array([3])], outputs=2, constants=[1], opset=24
    )
    np.testing.assert_array_equal(values, -np.sort(-x, -1)[:, :3])


def test_top_k_refuses_more_than_there_are() -> None:
    x = np.ones((2, 3), np.float32)
    with pytest.raises(ModelError, match=r"k = 4 is not in 0\.\.3"):
        run_op("TopK", [x, np.array([4])], outputs=2, constants=[1])


@pytest.mark.parametrize("attributes", [{}, {"sorted": 0}, {"axis": 0}, {"axis": -1, "sorted": 0}])
@pytest.mark.parametrize("dtype", ["float32", "int64", "int8"])
def test_unique(attributes: dict[str, Any], dtype: str) -> None:
    x = _RNG.integers(-1, 2, (7, 2)).astype(dtype)
    assert_matches_onnxruntime("Unique", [x], attributes, outputs=4, constants=[0])


@pytest.mark.parametrize("attributes", [{}, {"sorted": 0}, {"axis": 0}, {"axis": -1, "sorted": 0}])
@pytest.mark.parametrize("dtype", ["float32", "int64", "int8"])
def test_unique_at_run_time(attributes: dict[str, Any], dtype: str) -> None:
    x = _RNG.integers(-1, 2, (7, 2)).astype(dtype)
    compare(one_node_model("Unique", [x], attributes, outputs=4), [{"x0": x}, {"x0": x * 0}])
