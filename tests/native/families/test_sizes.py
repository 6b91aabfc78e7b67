"""Sizes that are checked and places that count from them: as numpy's kernels, errors too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.native import Library, NativeFailure
from tests.native.bindings import native_results, numpy_results

_BOUND = {"bound": 4, "tensor": "rows"}


def _both(
    library: Library, opcode: str, inputs: list[Array | None], attributes: Mapping[str, Any]
) -> None:
    first = inputs[0]
    assert first is not None
    out = np.empty(first.shape, np.int64)
    (expected,) = numpy_results(opcode, inputs, [out], attributes)
    found = native_results(library, opcode, inputs, [out], attributes)
    assert found is not None
    np.testing.assert_array_equal(found[0], expected)


def _whole(*shape: int, dtype: Any = np.int64) -> Array:
    return np.random.default_rng(1).integers(-3, 3, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    "indices", [_whole(5), _whole(4, 3).T, _whole(6, 3)[::2], _whole(2, 3, 3)[:, ::-1]], ids=str
)
def test_places(library: Library, indices: Array, dtype: Any) -> None:
    indices = indices.astype(dtype, order="K")
    some = np.arange(indices.shape[-1]) % 2 == 0
    far = np.where(some, indices, indices + 99).astype(dtype)
    _both(library, "PlacesWithin", [indices, np.array(3), None], {"padding": 0})
    _both(library, "PlacesWithin", [far, np.array(3), some], {"padding": 7})
    sizes = np.arange(indices.shape[-1]) + 3
    rows = np.zeros((*indices.shape[:-1], 1), bool)
    _both(library, "PlacesWithin", [indices + 0, sizes, rows], {"padding": 5})
    _both(library, "PlacesWithin", [indices, sizes[::-1], None], {"padding": 5})


@pytest.mark.parametrize("other", [None, np.array(4)])
def test_a_size(library: Library, other: Array | None) -> None:
    _both(library, "CheckSize", [np.array(4), other], _BOUND)
    _both(library, "CheckSize", [np.array(4), other], {**_BOUND, "bound": -1})


def _found(
    library: Library,
    opcode: str,
    inputs: list[Array | None],
    rows: tuple[int, ...],
    attributes: Mapping[str, Any],
) -> Array:
    """The results of both engines are the same; what was found."""
    outs = [np.full(rows, -1, np.int64), np.full((), -1, np.int64)]
    expected = numpy_results(opcode, inputs, outs, attributes)
    found = native_results(library, opcode, inputs, outs, attributes)
    assert found is not None
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return found[0]


_ZEROS = np.array([0.0, -0.0, 1.0, -2.0, np.nan, np.inf, 0.0, 3.0])


@pytest.mark.parametrize(
    "dtype",
    [
        *(np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32),
        *(np.int64, np.uint64, np.float16, np.float32, np.float64),
    ],
)
@pytest.mark.parametrize("shape", [(), (1,), (24,), (3, 8), (2, 3, 1, 5)])
def test_what_is_not_zero(library: Library, shape: tuple[int, ...], dtype: Any) -> None:
    with np.errstate(invalid="ignore"):
        x = np.resize(_ZEROS, shape).astype(dtype)
    for laid in (x, x.T, x[..., ::2] if x.ndim else x, np.broadcast_to(x, (2, *x.shape))):
        whole = {"bound": laid.size, "tensor": "places"}
        _found(library, "NonZero", [laid], (laid.ndim, laid.size), whole)
        most = int(np.count_nonzero(laid))
        _found(library, "NonZero", [laid], (laid.ndim, most), {**whole, "bound": most})


@pytest.mark.parametrize(
    "dtype",
    [
        *(np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32),
        *(np.int64, np.uint64, np.float32, np.float64),
    ],
)
@pytest.mark.parametrize("length", [1, 8, 33, 300])
@pytest.mark.parametrize("in_order", [0, 1])
def test_different_elements(library: Library, dtype: Any, length: int, in_order: int) -> None:
    """Zeros of both signs are one element, and so is what is not a number."""
    random = np.random.default_rng(length)
    with np.errstate(invalid="ignore"):
        x = random.choice([*_ZEROS, *range(-40, 300, 7), -np.inf, 1e18], length).astype(dtype)
    attributes = {"axis": 0, "bound": length, "tensor": "values", "sorted": in_order}
    for laid in (x, x[::-1], np.repeat(x, 2)[::2]):
        for used in (None, np.array(length), np.array(length // 2), np.array(0)):
            _unique(library, [laid, used], attributes)
    _unique(library, [x, None], {**attributes, "bound": len(np.unique(x))})


def _unique(
    library: Library, inputs: Sequence[Array | None], attributes: Mapping[str, Any]
) -> None:
    x, bound = inputs[0], attributes["bound"]
    assert x is not None
    places = [np.full(size, 1, np.int64) for size in (bound, x.size, bound)]
    outs = [np.full(bound, 1, x.dtype), *places, np.full((), -1, np.int64)]
    expected = numpy_results("Unique", inputs, outs, attributes)
    found = native_results(library, "Unique", inputs, outs, attributes)
    assert found is not None
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def _boxes(*shape: int) -> Array:
    """Boxes on a grid, so that many overlap by the same, and some have no size."""
    return np.random.default_rng(2).integers(0, 6, (*shape, 4)).astype(np.float32)


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("limit", [-1, 0, 1, 3, 99])
def test_boxes(library: Library, limit: int, overlap: float, centred: int) -> None:
    """Equal scores, scores that are no numbers, boxes that do not count, a least score."""
    boxes = _boxes(2, 40)
    boxes[1, 3], boxes[1, 5, 2] = np.nan, np.inf
    scores = np.random.default_rng(3).integers(-3, 9, (2, 3, 40)).astype(np.float32) / 8
    scores[0, 1, ::7], scores[1, 2, :3] = np.nan, [-0.0, np.inf, -np.inf]
    attributes = {"bound": 240, "tensor": "boxes", "center_point_box": centred}
    numbers = [np.array([limit]), np.array(overlap, np.float32)]
    for least in (None, np.array([0.25], np.float32), np.array(-np.inf, np.float32)):
        for used in (None, np.array(25), np.array(40), np.array(0)):
            inputs = [boxes, scores, *numbers, least, used]
            _found(library, "NonMaxSuppression", inputs, (240, 3), attributes)
    strided = [boxes[:, ::-1], scores.transpose(0, 1, 2)[:, ::2], *numbers, None, None]
    _found(library, "NonMaxSuppression", strided, (160, 3), {**attributes, "bound": 160})


@pytest.mark.parametrize(
    ("opcode", "inputs"),
    [
        ("NonZero", [np.ones((5,))]),
        ("NonZero", [np.array([0, 1, 1, 1, 1, 1])]),
        ("Unique", [np.array([5, 1, 9, 1, 5, 2, 7, 8]), None]),
        ("CheckSize", [np.array(5), None]),
        ("CheckSize", [np.array(-1), None]),
        ("CheckSize", [np.array(3), np.array(2)]),
        ("PlacesWithin", [np.array([0, 3]), np.array(3), None]),
        ("PlacesWithin", [np.array([[0, -4]]), np.array([1, 3]), np.array([True])]),
    ],
)
def test_faults_are_told_as_by_numpy(
    library: Library, opcode: str, inputs: list[Array | None]
) -> None:
    first = inputs[0]
    assert first is not None
    outs = [np.empty((1, 4), np.int64), np.empty((), np.int64)]
    if opcode == "Unique":
        places = [np.empty(size, np.int64) for size in (4, 4, first.size, 4)]
        outs = [*places, np.empty((), np.int64)]
    out = [np.empty(first.shape, np.int64)] if opcode in ("CheckSize", "PlacesWithin") else outs
    attributes = {**_BOUND, "padding": 0, "axis": 0, "sorted": 1}
    with pytest.raises(IndexError) as told:
        numpy_results(opcode, inputs, out, attributes)
    with pytest.raises(NativeFailure) as found:
        native_results(library, opcode, inputs, out, attributes)
    assert str(found.value) == str(told.value)
