"""Scatter: every reduction, opset form and kind of index."""

from __future__ import annotations

import numpy as np
import pytest

from popc.ir import TensorType
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attributes, DType
from popc_runtime.kernels import KERNELS, Binding, RandomState, Scratch, prepare
from tests.support.oracles import assert_matches_onnxruntime, run_ir, run_op

_RNG = np.random.default_rng(3)
_REDUCTIONS = ("none", "add", "mul", "min", "max")
_BOTH = pytest.mark.parametrize("constants", [(), (1,)])


def _normal(*shape: int) -> Array:
    return _RNG.normal(size=shape).astype(np.float32)


def _distinct(axis: int) -> Array:
    """Indices [4, 5, 3] into [5, 6, 7] that are distinct along ``axis``, some from the end."""
    order = _RNG.permuted(np.tile(np.arange(5).reshape(-1, 1, 1), (1, 6, 7)), axis=0)[:3]
    indices = np.moveaxis(order, 0, axis)[:4, :5, :3]
    return np.where(indices % 2, indices - (5, 6, 7)[axis], indices).astype(np.int64)


@_BOTH
@pytest.mark.parametrize("reduction", _REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements(reduction: str, axis: int, constants: tuple[int, ...]) -> None:
    indices = _distinct(axis % 3) if reduction == "none" else _RNG.integers(-5, 5, (4, 5, 3))
    operands = [_normal(5, 6, 7), indices, _normal(*indices.shape)]
    attributes = {"axis": axis, "reduction": reduction}
    assert_matches_onnxruntime(
        "ScatterElements", operands, attributes, opset=18, constants=constants
    )


@pytest.mark.parametrize(("op_type", "opset"), [("Scatter", 9), ("ScatterElements", 11)])
def test_scatter_elements_of_older_opsets(op_type: str, opset: int) -> None:
    operands = [_normal(5, 6, 7), _distinct(1), _normal(*_distinct(1).shape)]
    assert_matches_onnxruntime(op_type, operands, {"axis": 1}, opset=opset)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "uint8"])
def test_scatter_elements_of_other_types(dtype: str) -> None:
    data, updates = _RNG.integers(0, 9, (5, 6)), _RNG.integers(0, 9, (3, 6))
    indices = _RNG.integers(0, 5, (3, 6))
    operands = [data.astype(dtype), indices.astype(np.int32), updates.astype(dtype)]
    (y,) = run_op("ScatterElements", operands, {"axis": 0, "reduction": "add"}, opset=18)
    expected = data.astype(dtype)
    np.add.at(expected, (indices, np.arange(6)), updates.astype(dtype))
    np.testing.assert_array_equal(y, expected)


@_BOTH
@pytest.mark.parametrize("reduction", _REDUCTIONS)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scatter_nd(reduction: str, depth: int, constants: tuple[int, ...]) -> None:
    data = _normal(5, 6, 7)
    if reduction == "none":
        places = _RNG.permutation(5)[:4].reshape(2, 2, 1)
        indices = np.concatenate([places, _RNG.integers(-6, 6, (2, 2, depth - 1))], -1)
    else:
        indices = _RNG.integers(-5, 5, (2, 2, depth))
    operands = [data, indices, _normal(2, 2, *data.shape[depth:])]
    attributes = {"reduction": reduction}
    assert_matches_onnxruntime("ScatterND", operands, attributes, opset=18, constants=constants)


@_BOTH
@pytest.mark.parametrize("rows", [[1, 2, 3], [4, 2, 0], [0, 2, 4], [3], []])
def test_scatter_nd_of_evenly_spaced_rows(rows: list[int], constants: tuple[int, ...]) -> None:
    indices = np.array(rows, np.int64).reshape(-1, 1)
    operands = [_normal(5, 6), indices, _normal(len(rows), 6)]
    assert_matches_onnxruntime("ScatterND", operands, constants=constants)


def test_strided_operands() -> None:
    data, updates = _normal(6, 5).T, _normal(6, 3).T
    rows = np.array([[4], [0], [2]], np.int64)
    expected = data.copy()
    expected[rows[:, 0]] = updates
    (y,) = run_ir("ScatterND", [data, rows, updates], {"reduction": "none"})
    np.testing.assert_array_equal(y, expected)
    (y,) = run_ir("ScatterND", [data, rows, updates], {"reduction": "add"})
    expected = data.copy()
    expected[rows[:, 0]] += updates
    np.testing.assert_array_equal(y, expected)
    (y,) = run_ir(
        "ScatterElements",
        [data, np.broadcast_to(rows, (3, 6)), updates],
        {"axis": 0, "reduction": "none"},
    )
    expected[rows[:, 0]] = updates
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("wrong", [5, -6])
def test_run_time_indices_out_of_range(wrong: int) -> None:
    with pytest.raises(IndexError, match=f"index {wrong} is out of range"):
        run_op("ScatterND", [_normal(5, 6), np.array([[wrong]]), _normal(1, 6)])
    with pytest.raises(IndexError, match=f"index {wrong} is out of range"):
        run_op("ScatterElements", [_normal(5, 6), np.full((1, 6), wrong), _normal(1, 6)])


# -- TensorScatter ---------------------------------------------------------------------------------


def _reference(cache: Array, update: Array, first: Array, axis: int) -> Array:
    """Write by write, as the standard describes it."""
    result = cache.copy()
    for batch in range(len(cache)):
        for step in range(update.shape[axis]):
            to = (first[batch] + step) % cache.shape[axis]
            result[batch].swapaxes(0, axis - 1)[to] = update[batch].swapaxes(0, axis - 1)[step]
    return result


@pytest.mark.parametrize(
    ("mode", "first"), [("linear", [0, 4]), ("circular", [5, 3]), ("linear", None)]
)
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("constants", [(), (2,)])
def test_tensor_scatter(
    mode: str, first: list[int] | None, axis: int, constants: tuple[int, ...]
) -> None:
    cache, update = _normal(2, 3, 6, 4).swapaxes(2, axis), _normal(2, 3, 2, 4).swapaxes(2, axis)
    operands = [np.ascontiguousarray(cache), np.ascontiguousarray(update)]
    if first is not None:
        operands.append(np.array(first, np.int64))
    attributes = {"axis": axis, "mode": mode}
    (y,) = run_op("TensorScatter", operands, attributes, opset=24, constants=constants)
    starts = np.array(first or [0, 0])
    np.testing.assert_array_equal(y, _reference(operands[0], operands[1], starts, axis))


def test_tensor_scatter_refuses_to_write_past_the_end() -> None:
    operands = [_normal(1, 1, 6, 4), _normal(1, 1, 2, 4), np.array([5])]
    with pytest.raises(IndexError, match="do not fit into 6 steps"):
        run_op("TensorScatter", operands, opset=24)


# -- in place --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opcode", "attributes"),
    [
        ("ScatterElements", {"axis": 0, "reduction": "add"}),
        ("ScatterND", {"reduction": "none"}),
        ("TensorScatter", {"axis": 1, "mode": "linear"}),
    ],
)
def test_in_place(opcode: str, attributes: Attributes) -> None:
    data = _normal(3, 4)
    operands = {
        "ScatterElements": [data, np.array([[2, 1, 0, 0]]), _normal(1, 4)],
        "ScatterND": [data, np.array([[2]]), _normal(1, 4)],
        "TensorScatter": [data, _normal(3, 2), np.array([0, 1, 2])],
    }[opcode]
    (expected,) = run_ir(opcode, operands, attributes)
    dtypes = tuple(DType.of(array.dtype) for array in operands)
    binding = Binding(
        inputs=tuple(operands),
        outputs=(data,),
        input_dtypes=dtypes,
        output_dtypes=dtypes[:1],
        attributes=attributes,
        constant=(False,) * 3,
        scratch=Scratch(),
        random=RandomState(),
    )
    for call in prepare(KERNELS[opcode], binding):
        call()
    np.testing.assert_array_equal(data, expected)


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes", "message"),
    [
        ("ScatterND", [(5, 6), (2, 3), (2, 6)], {}, "index tuples of 3"),
        ("ScatterND", [(5, 6), (2, 1), (2, 5)], {}, "updates must be"),
        ("ScatterND", [(5, 6), (2, 1), (2, 6)], {"reduction": "div"}, "'reduction' is 'div'"),
        ("ScatterElements", [(5, 6), (2, 7), (2, 7)], {}, "exceed dimension 1"),
        ("ScatterElements", [(5, 6), (2, 6), (2, 5)], {}, "updates must be"),
        ("TensorScatter", [(2, 6, 4), (2, 7, 4)], {}, "7 steps do not fit a cache of 6"),
        ("TensorScatter", [(2, 6, 4), (2, 2, 5)], {}, "does not fit the cache"),
        ("TensorScatter", [(2, 6, 4), (2, 6, 4)], {"axis": 0}, "axis 0 is the batch"),
    ],
)
def test_indices_and_updates_that_do_not_fit_are_refused(
    op_type: str,
    operands: list[tuple[int, ...]],
    attributes: dict[str, int],
    message: str,
) -> None:
    is_index = [op_type != "TensorScatter" and place == 1 for place in range(3)]
    arrays: list[Array | None] = [
        np.zeros(shape, np.int64 if index else np.float32)
        for shape, index in zip(operands, is_index, strict=False)
    ]
    with pytest.raises(ModelError, match=message):
        run_op(op_type, arrays, attributes, opset=24)


def test_type_text_names_the_wanted_updates() -> None:
    wanted = str(TensorType(DType.FLOAT32, (2, 6)))
    with pytest.raises(ModelError, match="must be " + wanted.replace("[", r"\[")):
        run_op("ScatterND", [_normal(5, 6), np.zeros((2, 1), np.int64), _normal(2, 5)])
