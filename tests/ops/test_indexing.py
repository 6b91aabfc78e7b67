"""Gather and its relatives, one-hot, selection by mask."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from popc.ir import TensorType
from popc_runtime.errors import DataDependentShapeError, ModelError
from popc_runtime.format import Array, DType
from tests.support.oracles import (
    assert_matches_onnxruntime,
    import_graph,
    one_node_model,
    run_ir,
    run_kernel,
    run_op,
)

_RNG = np.random.default_rng(2)
_X = _RNG.normal(size=(5, 6, 7)).astype(np.float32)
_BOTH = pytest.mark.parametrize("constants", [(), (1,)])


def _indices(shape: tuple[int, ...], size: int, dtype: str = "int64") -> Array:
    return _RNG.integers(-size, size, shape).astype(dtype)


@_BOTH
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 4), (0,), (900,)])
def test_gather(axis: int, shape: tuple[int, ...], constants: tuple[int, ...]) -> None:
    for dtype in ("int32", "int64"):
        operands = [_X, _indices(shape, _X.shape[axis], dtype)]
        assert_matches_onnxruntime("Gather", operands, {"axis": axis}, constants=constants)


@pytest.mark.parametrize(
    ("indices", "op_types"),
    [
        (3, ["Slice", "Reshape"]),
        ([-1], ["Slice"]),
        ([[4, 2], [0, -2]], ["Gather"]),
        ([5, 3, 1], ["Slice"]),
        ([[0, 1], [2, 3]], ["Slice", "Reshape"]),
        ([2, 2], ["Gather"]),
        ([0, 1, 2, 3, 4, -1], []),
    ],
)
def test_gather_of_evenly_spaced_indices_is_a_view(indices: Any, op_types: list[str]) -> None:
    operands: list[Array | None] = [_X, np.array(indices, np.int64)]
    graph = import_graph(one_node_model("Gather", operands, {"axis": 1}, constants=[1]))
    assert [op.op_type for op in graph.ops] == op_types
    assert_matches_onnxruntime("Gather", operands, {"axis": 1}, constants=[1])


@pytest.mark.parametrize("shape", [(4,), (2000,)])
def test_gather_from_strided_operands(shape: tuple[int, ...]) -> None:
    indices = _indices(shape, 5)
    (y,) = run_ir("Gather", [_X.transpose(2, 0, 1)[::-1], indices], {"axis": 1})
    np.testing.assert_array_equal(y, _X.transpose(2, 0, 1)[::-1][:, indices])


@pytest.mark.parametrize("x", [_X[0, 0], _X, _X.T])
def test_gather_of_one_constant_index(x: Array) -> None:
    types = [TensorType(DType.FLOAT32, x.shape), TensorType(DType.INT64, ())]
    index = np.array(-2, np.int64)
    (y,) = run_kernel("Gather", [x, index], types, {"axis": 0}, [False, True])
    np.testing.assert_array_equal(y, x[-2])


def test_gather_of_bfloat16() -> None:
    x = _X.astype(ml_dtypes.bfloat16)
    (y,) = run_op("Gather", [x, np.array([1, 4], np.int64)], {"axis": 2})
    np.testing.assert_array_equal(y, x.astype(np.float32)[:, :, [1, 4]])


@pytest.mark.parametrize("shape", [(), (3,), (3000,)])
@pytest.mark.parametrize("wrong", [5, -6])
def test_run_time_indices_out_of_range(shape: tuple[int, ...], wrong: int) -> None:
    indices = np.full(shape, wrong, np.int64)
    with pytest.raises(IndexError, match="out of "):
        run_ir("Gather", [_X, indices], {"axis": 0})
    wide = np.full((1, 6, 7), wrong, np.int64)
    with pytest.raises(IndexError, match="out of range"):
        run_ir("GatherElements", [_X, wide], {"axis": 0})
    with pytest.raises(IndexError, match="out of range"):
        run_ir("GatherND", [_X, np.full((2, 1), wrong)], {"batch_dims": 0})


def test_known_indices_out_of_range() -> None:
    with pytest.raises(ModelError, match="index 9 is out of range for a dimension of size 6"):
        run_op("Gather", [_X, np.array([0, 9])], {"axis": 1}, constants=[1])
    with pytest.raises(ModelError, match="out of range"):
        run_op("GatherND", [_X, np.array([[9]])], constants=[0, 1])


@_BOTH
@pytest.mark.parametrize("axis", [0, 1, 2, -2])
def test_gather_elements(axis: int, constants: tuple[int, ...]) -> None:
    shape = [4, 5, 3]
    shape[axis] = 9
    operands = [_X, _indices(tuple(shape), _X.shape[axis])]
    assert_matches_onnxruntime("GatherElements", operands, {"axis": axis}, constants=constants)


def test_gather_elements_from_strided_operands() -> None:
    x = _X.transpose(2, 1, 0)
    indices = _indices((7, 2, 5), 6)
    (y,) = run_ir("GatherElements", [x, indices], {"axis": 1})
    np.testing.assert_array_equal(y, np.take_along_axis(x, indices, 1))


@_BOTH
@pytest.mark.parametrize(
    ("batch_dims", "shape"),
    [
        (0, (2, 3, 2)),
        (0, (4, 3)),
        (0, (1,)),
        (1, (5, 2)),
        (1, (5, 3, 1)),
        (2, (5, 6, 4, 1)),
        (0, (0, 2)),
    ],
)
def test_gather_nd(batch_dims: int, shape: tuple[int, ...], constants: tuple[int, ...]) -> None:
    operands = [_X, _indices(shape, 5)]
    attributes = {"batch_dims": batch_dims}
    assert_matches_onnxruntime("GatherND", operands, attributes, constants=constants)
    strided = np.asfortranarray(_X)
    (y,) = run_ir("GatherND", [strided, operands[1]], attributes)
    (expected,) = run_op("GatherND", operands, attributes)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
def test_one_hot(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    indices = _RNG.integers(-6, 7, shape).astype(dtype)  # some beyond the depth
    operands = [indices, np.array(4, np.int64), np.array([-1, 2.5], np.float32)]
    (y,) = run_op("OneHot", operands, {"axis": axis}, constants=[1])
    number = indices.astype(np.int64)[..., None]
    hit = (number == np.arange(4)) | (number + 4 == np.arange(4))
    np.testing.assert_array_equal(y, np.moveaxis(np.where(hit, np.float32(2.5), -1), -1, axis))


def test_one_hot_depth_must_be_known() -> None:
    operands = [np.array([0]), np.array(4), np.array([0, 1])]
    with pytest.raises(DataDependentShapeError, match="OneHot"):
        run_op("OneHot", operands)


@pytest.mark.parametrize("attributes", [{}, {"axis": 1}, {"axis": -1}])
@pytest.mark.parametrize("mask", [[True, False, True], [False], [False, True, False, True, False]])
def test_compress(attributes: dict[str, int], mask: list[bool]) -> None:
    operands = [_X, np.array(mask)]
    assert_matches_onnxruntime("Compress", operands, attributes, constants=[1])


@pytest.mark.parametrize("dtype", ["float32", "bool", "int64"])
@pytest.mark.parametrize("shape", [(3, 4), (5,), (0, 2)])
def test_non_zero(dtype: str, shape: tuple[int, ...]) -> None:
    x = _RNG.integers(0, 2, shape).astype(dtype)
    assert_matches_onnxruntime("NonZero", [x], constants=[0])


def test_non_zero_of_bfloat16_and_scalars() -> None:
    (y,) = run_op("NonZero", [np.array([0, -0.0, 2], ml_dtypes.bfloat16)], constants=[0])
    np.testing.assert_array_equal(y, [[2]])
    assert run_op("NonZero", [np.array(3)], constants=[0])[0].shape == (0, 1)


@pytest.mark.parametrize(
    ("op_type", "attributes", "indices", "message"),
    [
        ("Gather", {"axis": 3}, np.array(0), "axis 3 is out of range"),
        ("Gather", {"axis": 0}, np.array(0.5), "may be int32, int64"),
        ("GatherElements", {"axis": 0}, np.zeros((2, 7, 2), np.int64), "exceed dimension 1"),
        ("GatherElements", {"axis": 0}, np.zeros(2, np.int64), "rank 1"),
        ("GatherND", {"batch_dims": 0}, np.zeros((2, 4), np.int64), "index tuples of 4"),
        ("GatherND", {"batch_dims": 1}, np.zeros((2, 1), np.int64), "dimensions of data"),
    ],
)
def test_indices_that_do_not_fit_are_refused(
    op_type: str, attributes: dict[str, int], indices: Array, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        run_op(op_type, [_X, indices], attributes)
