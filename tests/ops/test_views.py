"""View rules against numpy, on arbitrarily strided operands."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc.ir import TensorType
from popc.ops import OPS, OutputView
from popc.ops.build import infer_types
from popc_runtime.format import Array, Attributes, DType
from tests.support.oracles import run_ir

_EXAMPLES = settings(max_examples=150, deadline=None)


@st.composite
def strided_arrays(draw: st.DrawFn) -> Array:
    """A float32 array that is a transposed, sliced and broadcast view of another."""
    dims = st.lists(st.sampled_from([0, 1, 2, 3, 4, 6]), max_size=4)
    shape = tuple(draw(dims.filter(lambda dims: prod(dims) <= 96)))
    array: Array = np.arange(prod(shape), dtype=np.float32).reshape(shape)
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    steps = draw(st.tuples(*[st.sampled_from([1, 1, 1, 2, -1, -2])] * array.ndim))
    array = array[tuple(slice(None, None, step) for step in steps)]
    wide = tuple(3 if dim == 1 and draw(st.booleans()) else dim for dim in array.shape)
    return np.broadcast_to(array, wide)


@st.composite
def shapes_of_size(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    """A shape of ``size`` elements."""
    if size == 0:
        return (*draw(st.lists(st.integers(0, 3), max_size=3)), 0)
    factors: list[int] = []
    for prime in (2, 3):
        while size % prime == 0:
            factors.append(prime)
            size //= prime
    factors = draw(st.permutations(factors))
    cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=3)))
    return tuple(prod(factors[a:b]) for a, b in pairwise([0, *cuts, len(factors)]))


def _view(op_type: str, x: Array, attributes: Attributes, index: int = 0) -> OutputView | None:
    source = TensorType(DType.FLOAT32, x.shape)
    rule = OPS[op_type].view
    assert rule is not None
    result = infer_types(op_type, [source], attributes)[index]
    return rule(source, x.strides, result, index, attributes)


def _check(op_type: str, x: Array, attributes: Attributes, expected: Array, index: int = 0) -> None:
    """The view shows what numpy shows, and the kernel copies the same."""
    view = _view(op_type, x, attributes, index)
    assert view is not None
    if expected.size:
        assert view.offset == _address(expected) - _address(x)
        varying = [axis for axis, dim in enumerate(expected.shape) if dim > 1]
        assert [view.strides[a] for a in varying] == [expected.strides[a] for a in varying]
    assert len(view.strides) == expected.ndim
    np.testing.assert_array_equal(run_ir(op_type, [x], attributes)[index], expected)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


@_EXAMPLES
@given(st.data())
def test_reshape_is_a_view_exactly_when_numpy_needs_no_copy(data: st.DataObject) -> None:
    x = data.draw(strided_arrays())
    shape = data.draw(shapes_of_size(x.size))
    attributes: Attributes = {"shape": shape}
    try:
        expected = np.reshape(x, shape, copy=False)
    except ValueError:
        assert _view("Reshape", x, attributes) is None
        np.testing.assert_array_equal(run_ir("Reshape", [x], attributes)[0], x.reshape(shape))
    else:
        _check("Reshape", x, attributes, expected)


@_EXAMPLES
@given(st.data())
def test_transpose(data: st.DataObject) -> None:
    x = data.draw(strided_arrays())
    perm = tuple(data.draw(st.permutations(range(x.ndim))))
    _check("Transpose", x, {"perm": perm}, x.transpose(perm))


@_EXAMPLES
@given(st.data())
def test_slice(data: st.DataObject) -> None:
    x = data.draw(strided_arrays())
    windows = [range(dim)[data.draw(st.slices(dim))] if dim else range(0) for dim in x.shape]
    attributes: Attributes = {
        "starts": tuple(window.start if window else 0 for window in windows),
        "sizes": tuple(len(window) for window in windows),
        "steps": tuple(window.step for window in windows),
    }
    index = np.ix_(*windows) if windows else ()
    view = _view("Slice", x, attributes)
    assert view is not None
    np.testing.assert_array_equal(run_ir("Slice", [x], attributes)[0], x[index])
    parts = tuple(
        slice(w.start, w.stop if w.stop >= 0 else None, w.step) if w else slice(0, 0)
        for w in windows
    )
    _check("Slice", x, attributes, x[(*parts, ...)])


@_EXAMPLES
@given(st.data())
def test_expand(data: st.DataObject) -> None:
    x = data.draw(strided_arrays())
    added = tuple(data.draw(st.lists(st.integers(0, 3), max_size=2)))
    wide = tuple(4 if dim == 1 and data.draw(st.booleans()) else dim for dim in x.shape)
    _check("Expand", x, {"shape": (*added, *wide)}, np.broadcast_to(x, (*added, *wide)))


@_EXAMPLES
@given(st.data())
def test_split(data: st.DataObject) -> None:
    x = data.draw(strided_arrays().filter(lambda x: x.ndim > 0))
    axis = data.draw(st.integers(0, x.ndim - 1))
    cuts = sorted(data.draw(st.lists(st.integers(0, x.shape[axis]), max_size=3)))
    parts = tuple(b - a for a, b in pairwise([0, *cuts, x.shape[axis]]))
    for index, expected in enumerate(np.split(x, cuts, axis)):
        _check("Split", x, {"axis": axis, "split": parts}, expected, index)


@pytest.mark.parametrize(
    ("shape", "perm"),
    [
        ((64, 300), (1, 0)),
        ((1, 40, 50, 60), (0, 3, 1, 2)),
        ((3, 100, 70), (0, 2, 1)),
        ((2, 3, 120, 40), (0, 2, 3, 1)),
        ((130, 128, 20), (2, 1, 0)),
        ((2, 2, 2, 30, 40, 10), (0, 3, 1, 4, 2, 5)),
        ((1000, 2, 9), (2, 0, 1)),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_copies_in_panels_are_complete(
    shape: tuple[int, ...], perm: tuple[int, ...], dtype: type[np.generic]
) -> None:
    x = np.random.default_rng(0).integers(0, 255, shape).astype(dtype)
    np.testing.assert_array_equal(run_ir("Transpose", [x], {"perm": perm})[0], x.transpose(perm))


def test_parts_of_several_splits_in_turn() -> None:
    """What is remembered of one Split is not told of another, were it equal."""
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    for _ in range(2):
        for sizes in ((1, 2, 3), (3, 2, 1), (1, 2, 3), (6,)):
            parts = np.split(x, np.cumsum(sizes)[:-1], axis=1)
            for index, part in enumerate(parts):
                _check("Split", x, {"axis": 1, "split": tuple(sizes)}, part, index)
