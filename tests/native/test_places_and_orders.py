"""Kernels that look for places along axes: gathers, scatters, orders, reductions, resized axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array
from popc_runtime.native import Library, NativeFailure, find_library
from tests.native.bindings import native_results, numpy_results, steady_results

_DTYPES = ["float32", "float64", "int32", "int64"]


def _library() -> Library:
    library = find_library()
    if library is None:
        pytest.skip("there are no native kernels")
    return library


def _numbers(shape: Sequence[int], dtype: str = "float32", seed: int = 0, limit: int = 5) -> Array:
    random = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return (random.standard_normal(shape) * 2).astype(dtype)
    return random.integers(0 if dtype[0] in "ub" else -limit, limit, shape).astype(dtype)


def _laid_out(array: Array, layout: str) -> Array:
    if layout == "transposed":
        return np.ascontiguousarray(array.T).T
    if layout == "backwards":
        return np.ascontiguousarray(array[::-1])[::-1]
    return array


def _same(
    opcode: str,
    inputs: Sequence[Array | None],
    outputs: Sequence[Array],
    attributes: Mapping[str, Any],
    tolerance: float = 0.0,
    constant: Sequence[int] = (),
) -> None:
    expected = numpy_results(opcode, inputs, outputs, attributes, constant)
    found = steady_results(_library(), opcode, inputs, outputs, attributes, constant)
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


_LAYOUTS = st.sampled_from(["contiguous", "transposed", "backwards"])
_SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_single_elements(data: st.DataObject) -> None:
    shape = data.draw(_SHAPES)
    axis = data.draw(st.integers(0, len(shape) - 1))
    dtype = data.draw(st.sampled_from([*_DTYPES, "uint8", "bool", "int16"]))
    x = _laid_out(_numbers(shape, dtype, limit=2), data.draw(_LAYOUTS))
    wanted = [data.draw(st.integers(1, size)) for size in shape]
    wanted[axis] = data.draw(st.integers(1, 12))
    random = np.random.default_rng(1)
    kind = data.draw(st.sampled_from([np.int32, np.int64]))
    indices = random.integers(-shape[axis], shape[axis], wanted).astype(kind)
    attributes = {"axis": axis}
    _same("GatherElements", [x, indices], [np.empty(wanted, dtype)], attributes)
    updates = _laid_out(_numbers(wanted, dtype, 2, 2), data.draw(_LAYOUTS))
    out = np.empty(shape, dtype)
    _same("ScatterElements", [x, indices, updates], [out], {**attributes, "reduction": "none"})
    if dtype in _DTYPES:
        reduction = data.draw(st.sampled_from(["add", "mul", "min", "max"]))
        operands = [x, indices, updates]
        _same("ScatterElements", operands, [out], {**attributes, "reduction": reduction}, 1e-6)
        reduced = {**attributes, "reduction": reduction.replace("add", "sum")}
        _same("ScatterReduce", [updates, indices, x], [out], reduced, 1e-6)
        _same("ScatterReduce", [updates, indices], [out], {**attributes, "reduction": "sum"}, 1e-6)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_rows(data: st.DataObject) -> None:
    shape = data.draw(_SHAPES)
    batch = data.draw(st.integers(0, len(shape) - 1))
    depth = data.draw(st.integers(1, len(shape) - batch))
    middle = data.draw(st.lists(st.integers(1, 4), max_size=2))
    dtype = data.draw(st.sampled_from([*_DTYPES, "uint8"]))
    x = _laid_out(_numbers(shape, dtype), data.draw(_LAYOUTS))

    def tuples(before: Sequence[int], first: int) -> Array:
        sizes = shape[first : first + depth]
        random = np.random.default_rng(3)
        parts = [random.integers(-size, size, [*before, 1]) for size in sizes]
        return np.concatenate(parts, axis=-1)

    indices = tuples([*shape[:batch], *middle], batch)
    out = np.empty([*indices.shape[:-1], *shape[batch + depth :]], dtype)
    _same("GatherND", [x, indices], [out], {"batch_dims": batch})
    indices = tuples(middle or [3], 0)
    updates = _numbers([*indices.shape[:-1], *shape[depth:]], dtype, 5)
    reduction = data.draw(st.sampled_from(["none", "add", "mul", "min", "max"]))
    if reduction == "none" or dtype in _DTYPES:
        attributes = {"reduction": reduction}
        _same("ScatterND", [x, indices, updates], [np.empty(shape, dtype)], attributes, 1e-6)


@pytest.mark.parametrize("opcode", ["GatherElements", "GatherND", "ScatterElements", "ScatterND"])
@pytest.mark.parametrize("wrong", [3, -4])
def test_indices_outside(opcode: str, wrong: int) -> None:
    x, indices = _numbers([3, 2]), np.array([[0, wrong]]).T
    inputs = [x, indices] if "Gather" in opcode else [x, indices, _numbers([2, 1])]
    out = np.empty((2, 1) if opcode == "GatherElements" else (2, 2), np.float32)
    if "Scatter" in opcode:
        inputs[2], out = _numbers([2, 1 if "Elements" in opcode else 2]), np.empty_like(x)
    with pytest.raises(NativeFailure, match="an index is out of range"):
        native_results(_library(), opcode, inputs, [out], {"axis": 0})
    with pytest.raises(IndexError):
        numpy_results(opcode, inputs, [out], {"axis": 0})


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
@pytest.mark.parametrize("axis", [0, 1])
def test_threads_share_elements(axis: int, dtype: str) -> None:
    x = _numbers([400, 170], dtype, limit=2)
    indices = np.random.default_rng(1).integers(-170, 170, x.shape)
    out, attributes = np.empty_like(x), {"axis": axis}
    _same("GatherElements", [x, indices], [out], attributes)
    indices[-1, -1] = 400
    with pytest.raises(NativeFailure, match="an index is out of range"):
        native_results(_library(), "GatherElements", [x, indices], [out], attributes)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_one_hot(axis: int, dtype: str) -> None:
    indices = np.array([[0, 3, -1], [4, -5, 9]], np.int64)
    shape = list(indices.shape)
    shape.insert(axis % 3, 5)
    values = np.array([0, 1]).astype(dtype)
    _same("OneHot", [indices, values], [np.empty(shape, dtype)], {"axis": axis, "depth": 5})


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_orders_of_long_lines(data: st.DataObject) -> None:
    """As many as are sorted by comparing, or by bytes; many that are equal, or none."""
    lines, length = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 900))
    dtype = data.draw(st.sampled_from([*_DTYPES, "uint8", "int16", "uint32"]))
    x = np.random.default_rng(length).normal(0, 10 ** data.draw(st.integers(0, 4)), (lines, length))
    x = np.abs(x).astype(dtype) if dtype.startswith("u") else x.astype(dtype)
    if dtype.startswith("float") and data.draw(st.booleans()):
        places = data.draw(st.lists(st.integers(0, x.size - 1), max_size=9))
        x.flat[places] = [np.nan, -np.inf, np.inf, -0.0, 0.0, -np.nan, 1e-40, 1, -1][: len(places)]
    largest, last = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1))
    k = data.draw(st.integers(1, length))
    attributes = {"axis": 1, "k": k, "largest": largest}
    _same("TopK", [x], [np.empty((lines, k), dtype), np.empty((lines, k), np.int64)], attributes)
    for opcode in ("ArgMax", "ArgMin"):
        _same(opcode, [x], [np.empty((lines, 1), np.int64)], {"axis": 1, "select_last_index": last})


@pytest.mark.parametrize("wanted", [1, 16, 17, 150, 400])
@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64"])
def test_orders_by_the_last_bits_of_64(dtype: str, wanted: int) -> None:
    """A line whose ends are so far apart that the rest differs in its last bits only."""
    steps = np.random.default_rng(wanted).integers(0, 300, 500)
    ends = {"int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1), "float64": (-1e300, np.nan)}
    middle = {"int64": 2**60, "uint64": 2**63, "float64": 1}[dtype]
    step = 2.0**-52 if dtype == "float64" else 1
    x = np.full((1, 500), middle, dtype) + (steps * step).astype(dtype)
    x[0, [77, 401]] = ends[dtype]
    outputs = [np.empty((1, wanted), dtype), np.empty((1, wanted), np.int64)]
    for largest in (0, 1):
        _same("TopK", [x], outputs, {"axis": 1, "k": wanted, "largest": largest})


@pytest.mark.parametrize("dtype", [*_DTYPES, "int8", "uint16"])
@pytest.mark.parametrize("length", [1, 2, 5, 31, 32, 33])
@pytest.mark.parametrize("lines", [63, 65, 300])
def test_orders_of_many_short_lines(lines: int, length: int, dtype: str) -> None:
    """Many of their elements are equal, some undefined."""
    random = np.random.default_rng(lines + length)
    x = random.integers(0, 4, (lines, length)).astype(dtype)
    if dtype.startswith("float"):
        x[random.random(x.shape) < 0.1] = np.nan
    for largest in (0, 1):
        for k in {1, min(2, length), length}:
            outputs = [np.empty((lines, k), dtype), np.empty((lines, k), np.int64)]
            _same("TopK", [x], outputs, {"axis": 1, "k": k, "largest": largest})
    for opcode in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            attributes = {"axis": 1, "select_last_index": last}
            _same(opcode, [x], [np.empty((lines, 1), np.int64)], attributes)


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_orders(data: st.DataObject) -> None:
    shape = data.draw(_SHAPES)
    axis = data.draw(st.integers(0, len(shape) - 1))
    dtype = data.draw(st.sampled_from([*_DTYPES, "uint8", "int8", "int16"]))
    x = _numbers(shape, dtype)
    if dtype.startswith("float"):
        special = [np.nan, np.inf, -np.inf, 0.0, -0.0, -np.nan, 0.0, 1e-40]
        x.flat[: data.draw(st.integers(0, 8))] = special[: x.size][: x.size]
    x = _laid_out(x, data.draw(_LAYOUTS))
    wanted = list(shape)
    wanted[axis] = data.draw(st.integers(1, shape[axis]))
    attributes = {"axis": axis, "k": wanted[axis], "largest": data.draw(st.integers(0, 1))}
    _same("TopK", [x], [np.empty(wanted, dtype), np.empty(wanted, np.int64)], attributes)
    rest = np.empty([*shape[:axis], 1, *shape[axis + 1 :]], np.int64)
    for opcode in ("ArgMax", "ArgMin"):
        _same(
            opcode, [x], [rest], {"axis": axis, "select_last_index": data.draw(st.integers(0, 1))}
        )
    if dtype in _DTYPES:
        flags = {"reverse": data.draw(st.integers(0, 1)), "exclusive": data.draw(st.integers(0, 1))}
        for opcode in ("CumSum", "CumProd"):
            _same(opcode, [x], [np.empty(shape, dtype)], {"axis": axis, **flags}, 1e-6)
            chosen = np.array(axis - data.draw(st.sampled_from([0, len(shape)])), np.int32)
            _same(opcode, [x, chosen], [np.empty(shape, dtype)], flags, 1e-6)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_gradients_of_running_products(data: st.DataObject) -> None:
    """Of factors that may be 0, along an axis that is an attribute or a constant."""
    shape = data.draw(_SHAPES)
    axis = data.draw(st.integers(0, len(shape) - 1))
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    grad = _laid_out(_numbers(shape, dtype), data.draw(_LAYOUTS))
    x = _laid_out(np.round(_numbers(shape, dtype, 5)) / 2, data.draw(_LAYOUTS))
    flags = {"reverse": data.draw(st.integers(0, 1)), "exclusive": data.draw(st.integers(0, 1))}
    out = np.empty(shape, dtype)
    _same("CumProdGrad", [grad, x], [out], {"axis": axis, **flags}, 1e-5)
    chosen = np.array(axis - data.draw(st.sampled_from([0, len(shape)])))
    _same("CumProdGrad", [grad, x, chosen], [out], flags, 1e-5, constant=(2,))


@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_reductions(data: st.DataObject) -> None:
    shape = data.draw(_SHAPES)
    shape[-1] *= data.draw(st.sampled_from([1, 1, 10]))
    axes = tuple(axis for axis in range(len(shape)) if data.draw(st.booleans()))
    dtype = data.draw(st.sampled_from([*_DTYPES, "uint8", "int8", "uint32"]))
    names = ["L1", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]
    floats = ["L2", "LogSum", "LogSumExp"] if dtype.startswith("float") else []
    opcode = data.draw(st.sampled_from([*names, *floats]))
    x = _laid_out(_numbers(shape, dtype), data.draw(_LAYOUTS))
    if opcode == "LogSum":
        x = np.abs(x)
    if dtype.startswith("float") and opcode != "Prod" and data.draw(st.booleans()):
        x = x.copy()
        x.flat[0] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
    with np.errstate(all="ignore"):
        _same(f"Reduce{opcode}", [x], [np.empty(kept, dtype)], {"axes": axes}, 1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"])
@pytest.mark.parametrize("opcode", ["L1", "Max", "Min", "Prod", "Sum", "SumSquare"])
def test_reductions_of_integers_of_every_length(opcode: str, dtype: str) -> None:
    """Lengths at which compilers change from one kind of loop to another."""
    numbers = np.random.default_rng(0).integers(0, 100, 2 * 150).astype(dtype)
    for length in (*range(1, 70), 96, 127, 128, 129):
        for x in (numbers[:length], numbers[: 2 * length : 2]):
            _same(f"Reduce{opcode}", [x], [np.empty(1, dtype)], {"axes": (0,)})


@pytest.mark.parametrize("opcode", ["ReduceMax", "ReduceMin"])
def test_reductions_of_truth_values(opcode: str) -> None:
    x = np.random.default_rng(0).integers(0, 2, (5, 3, 4)).astype(np.bool_)
    _same(opcode, [x], [np.empty((5, 1, 4), np.bool_)], {"axes": (1,)})


_COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]


@pytest.mark.parametrize(("mode", "coordinates"), [*product(["linear", "cubic"], _COORDINATES)])
@pytest.mark.parametrize("after", [(1, 3, 14, 20), (1, 3, 4, 23), (1, 5, 7, 5)])
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_resize(mode: str, coordinates: str, after: tuple[int, ...], layout: str) -> None:
    before = (1, 3, 7, 10)
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": coordinates,
        "scales": tuple(b / a for a, b in zip(before, after, strict=True)),
    }
    x = _laid_out(_numbers(before), layout)
    _same("Resize", [x], [np.empty(after, np.float32)], attributes, 1e-5)
    grad = _laid_out(_numbers(after), layout)
    _same("ResizeGrad", [grad], [np.empty(before, np.float32)], attributes, 1e-5)


@pytest.mark.parametrize("coordinates", _COORDINATES)
@pytest.mark.parametrize("nearest", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64", "int16"])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "backwards"])
def test_resize_to_nearest(coordinates: str, nearest: str, dtype: str, layout: str) -> None:
    before, after = (1, 3, 7, 10), (1, 3, 14, 13)
    attributes = {
        "mode": "nearest",
        "nearest_mode": nearest,
        "coordinate_transformation_mode": coordinates,
        "scales": tuple(b / a for a, b in zip(before, after, strict=True)),
    }
    x = _laid_out(_numbers(before, dtype), layout)
    _same("Resize", [x], [np.empty(after, dtype)], attributes)
