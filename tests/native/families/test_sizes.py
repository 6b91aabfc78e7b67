"""Sizes that are checked and places that count from them: as numpy's kernels, errors too."""

from __future__ import annotations

from collections.abc import Mapping
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


@pytest.mark.parametrize(
    ("opcode", "inputs"),
    [
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
    out, attributes = [np.empty(first.shape, np.int64)], {**_BOUND, "padding": 0}
    with pytest.raises(IndexError) as told:
        numpy_results(opcode, inputs, out, attributes)
    with pytest.raises(NativeFailure) as found:
        native_results(library, opcode, inputs, out, attributes)
    assert str(found.value) == str(told.value)
