"""ai.graphcore: elements gathered and combined by index; judged by loops in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import import_graph, one_node_model, run_ir, run_op

_DOMAIN: Final = "ai.graphcore"
_RNG: Final = np.random.default_rng(7)
_COMBINE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "max": max,
    "min": min,
    "mul": lambda a, b: a * b,
    "none": lambda _, b: b,
    "sum": lambda a, b: a + b,
}


def _run(
    op_type: str,
    inputs: Sequence[Array | None],
    attributes: Mapping[str, Any],
    constants: Sequence[int] = (),
) -> Array:
    return run_op(op_type, inputs, attributes, constants=constants, domain=_DOMAIN)[0]


def _reference(
    data: Array, indices: Array, axis: int, size: int, reduction: str, initial: Array | None = None
) -> Array:
    """Element by element, with an index for each."""
    shape = (*data.shape[:axis], size, *data.shape[axis + 1 :])
    found: dict[tuple[int, ...], Any] = {}
    if initial is not None:
        found = {place: initial[place] for place in np.ndindex(shape)}
    for place in np.ndindex(data.shape):
        target = (*place[:axis], int(indices[place]), *place[axis + 1 :])
        value = data[place]
        found[target] = _COMBINE[reduction](found[target], value) if target in found else value
    result = np.full(shape, 1 if reduction == "mul" else 0, data.dtype)
    for target, value in found.items():
        result[target] = value
    return result


@st.composite
def _scatters(draw: st.DrawFn) -> tuple[Array, Array, int, int, Array | None]:
    rank = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    axis, size = draw(st.integers(0, rank - 1)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    data = rng.integers(-4, 5, shape).astype(np.float64)
    depth = draw(st.sampled_from(sorted({axis + 1, rank})))
    indices = rng.integers(0, size, shape[:depth])
    result = (*shape[:axis], size, *shape[axis + 1 :])
    initial = rng.integers(-4, 5, result).astype(np.float64) if draw(st.booleans()) else None
    return data, indices, axis, size, initial


@given(_scatters(), st.sampled_from(sorted(_COMBINE)), st.booleans())
@settings(max_examples=120, deadline=None)
def test_scatter_reduce(
    case: tuple[Array, Array, int, int, Array | None],
    reduction: str,
    fortran: bool,  # noqa: FBT001
) -> None:
    data, indices, axis, size, initial = case
    wide = np.broadcast_to(
        indices.reshape(indices.shape + (1,) * (data.ndim - indices.ndim)), data.shape
    )
    attributes: dict[str, int | str] = {"axis": axis, "axis_size": size, "reduction": reduction}
    given_data = np.asfortranarray(data) if fortran else data
    (result,) = run_ir("ScatterReduce", [given_data, indices, initial], attributes)
    expected = _reference(data, wide, axis, size, reduction, initial)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, np.uint8])
@pytest.mark.parametrize("reduction", sorted(_COMBINE))
def test_element_types(reduction: str, dtype: Any) -> None:
    data = np.array([[1, 2], [5, 6], [3, 4], [7, 8], [1, 10]], dtype)
    indices = np.array([0, 1, 0, 1, 3], np.uint32)
    attributes = {"axis": 0, "axis_size": 4, "reduction": reduction}
    result = _run("ScatterReduce", [data, indices], attributes)
    wide = np.broadcast_to(indices[:, None], data.shape)
    expected = _reference(data, wide, 0, 4, reduction)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, expected)


def test_many_rows() -> None:
    data = _RNG.standard_normal((5000, 33)).astype(np.float32)
    indices = _RNG.integers(0, 70, 5000).astype(np.int32)
    expected = np.zeros((70, 33))
    np.add.at(expected, indices, data)
    for constants in ((), (1,)):
        result = _run("ScatterReduce", [data, indices], {"axis": 0, "axis_size": 70}, constants)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_a_vector_of_indices_goes_along_the_axis(axis: int) -> None:
    data = _RNG.integers(-5, 5, (2, 3, 4)).astype(np.float32)
    indices = _RNG.integers(0, 5, (data.shape[axis],))
    result = _run("ScatterReduce", [data, indices], {"axis": axis, "axis_size": 5})
    place = axis % 3
    shape = [1, 1, 1]
    shape[place] = -1
    wide = np.broadcast_to(indices.reshape(shape), data.shape)
    np.testing.assert_array_equal(result, _reference(data, wide, place, 5, "sum"))


def test_without_broadcast_the_data_is_cut() -> None:
    data = np.arange(12, dtype=np.float32).reshape(4, 3)
    indices = np.array([[1, 0], [1, 1]])
    attributes = {"axis": 0, "axis_size": 2, "enable_index_broadcast": 0}
    result = _run("ScatterReduce", [data, indices], attributes)
    np.testing.assert_array_equal(result, [[0, 1], [0 + 3, 4]])
    result = _run("ScatterReduce", [data, indices[:, 0]], attributes)
    np.testing.assert_array_equal(result, [[0], [3]])


@pytest.mark.parametrize("axis", [0, 1])
def test_initial_values_may_be_larger_than_the_data(axis: int) -> None:
    """Then data is combined with the first elements, and the others stay, as in PyTorch."""
    data = _RNG.standard_normal((4, 3, 2)).astype(np.float32)
    initial = _RNG.standard_normal((6, 5, 2)).astype(np.float32)
    indices = np.array([1, 0, 1, 5][: data.shape[axis]])
    expected = initial.copy()
    rows = np.moveaxis(expected, axis, 0)[:, : data.shape[1 - axis]]
    for index, row in zip(indices, np.moveaxis(data, axis, 0), strict=True):
        rows[index] += row
    found = _run("ScatterReduce", [data, indices, initial], {"axis": axis, "axis_size": 4})
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("op_type", ["ScatterReduce", "GroupedScatterReduce"])
@pytest.mark.parametrize("reduction", ["max", "sum"])
@pytest.mark.parametrize("axis", [1, 2])
def test_grouped_scatter(op_type: str, reduction: str, axis: int) -> None:
    data = _RNG.integers(-5, 5, (2, 4, 3)).astype(np.float32)
    indices = _RNG.integers(0, 3, (2, data.shape[axis]))
    attributes = {"axis": axis, "axis_size": 3, "group_size": 2, "reduction": reduction}
    result = _run(op_type, [data, indices], attributes)
    for group in range(2):
        own = indices[group][:, None] if axis == 1 else indices[group][None, :]
        wide = np.broadcast_to(own, data[group].shape)
        expected = _reference(data[group], wide, axis - 1, 3, reduction)
        np.testing.assert_array_equal(result[group], expected)


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize(("depth", "dtype"), [(0, np.uint32), (1, np.int32), (2, np.int64)])
def test_grouped_gather(axis: int, depth: int, dtype: type[np.integer[Any]]) -> None:
    x = _RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
    indices = _RNG.integers(0, 3, (2, 2, 3)[: depth + 1]).astype(dtype)
    result = _run("GroupedGather", [x, indices], {"axis": axis, "group_size": 2})
    expected = np.stack([np.take(x[g], indices[g], axis - 1) for g in range(2)])
    np.testing.assert_array_equal(result, expected)


def test_gather_of_a_single_group() -> None:
    x = _RNG.standard_normal((3, 4)).astype(np.float32)
    indices = np.array([[2, 0], [1, 1]], np.int32)
    result = _run("GroupedGather", [x, indices], {"axis": 1})
    np.testing.assert_array_equal(result, np.take(x, indices, 1))


def test_embedding_lookup() -> None:
    table = _RNG.standard_normal((6, 4)).astype(np.float32)
    ids = np.array([[5, 0], [3, 3]], np.uint32)
    result = _run("EmbeddingLookup", [table, ids], {"serialization_factor": 3})
    np.testing.assert_array_equal(result, table[ids])
    with pytest.raises(ModelError, match="cannot be cut into 4 parts"):
        _run("EmbeddingLookup", [table, ids], {"serialization_factor": 4})


_DATA: Final = np.zeros((4, 3), np.float32)
_INDICES: Final = np.zeros(4, np.int32)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ([_DATA, _INDICES], {"axis": 0}, "attribute 'axis_size' is required"),
        ([_DATA, _INDICES], {"axis": 0, "axis_size": 0}, "axis_size must be positive"),
        ([_DATA, _INDICES], {"axis": 2, "axis_size": 1}, "axis 2 is out of range"),
        ([_DATA, _INDICES], {"axis": 0, "axis_size": 1, "reduction": "mean"}, "expected one of"),
        ([_DATA, _INDICES[:3]], {"axis": 0, "axis_size": 1}, "3 indices are given for 4"),
        ([_DATA, _DATA], {"axis": 0, "axis_size": 1}, "indices must be integers"),
        ([_DATA, _INDICES, _DATA[:1]], {"axis": 0, "axis_size": 2}, "initial values must be"),
        ([_DATA, _INDICES], {"axis": 1, "axis_size": 2}, "do not fit data"),
        ([_DATA, _INDICES], {"axis": 0, "axis_size": 2, "group_size": 2}, "along axis 0"),
    ],
)
def test_wrong_axes_indices_and_values_are_refused(
    inputs: list[Array], attributes: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        import_graph(one_node_model("ScatterReduce", inputs, attributes, domain=_DOMAIN))


def test_indices_must_be_in_range() -> None:
    with pytest.raises(IndexError, match="index 3 is out of range"):
        _run("ScatterReduce", [_DATA, _INDICES + 3], {"axis": 0, "axis_size": 3})
