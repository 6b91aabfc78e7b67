"""Tensors of the protocol, as bytes and as lists."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from popc_runtime.errors import InputMismatchError, UsageError
from popc_runtime.format import DType, LabelKind, TensorSpec
from popc_runtime.serving.tensors import (
    GivenTensor,
    arrays_of,
    as_bytes,
    as_list,
    datatype_of,
    results_of,
)

_X = TensorSpec("x", DType.FLOAT32, (2, 2))
_N = TensorSpec("n", DType.UINT8, (2,))
_H = TensorSpec("h", DType.FLOAT16, (1,))
_W = TensorSpec("w", DType.INT64, (2,), ("cat", "dög"), LabelKind.ELEMENTS)
_SPECS = {spec.name: spec for spec in (_X, _N, _H, _W)}


def _one(name: str, datatype: str, shape: tuple[int, ...], data: Any) -> Any:
    return arrays_of([GivenTensor(name, datatype, shape, data)], [_SPECS[name]])[name]


@pytest.mark.parametrize(
    ("name", "datatype", "shape", "data", "expected"),
    [
        ("x", "FP32", (2, 2), np.arange(4, dtype="f4").tobytes(), np.arange(4.0).reshape(2, 2)),
        ("x", "FP32", (2, 2), [[1, 2], [3, 4.5]], np.array([[1, 2], [3, 4.5]])),
        ("x", "FP32", (2, 2), [1, 2, 3, 4], np.array([[1, 2], [3, 4]])),
        ("n", "UINT8", (2,), [0, 255], np.array([0, 255])),
        ("n", "UINT8", (2,), b"\x01\xff", np.array([1, 255])),
        ("n", "UINT8", (0,), [], np.array([])),
        ("w", "BYTES", (2,), ["cat", "dög"], np.array(["cat", "dög"], object)),
        ("w", "INT64", (2,), [0, -1], np.array([0, -1])),
    ],
)
def test_elements_are_read(
    name: str, datatype: str, shape: tuple[int, ...], data: Any, expected: Any
) -> None:
    found = _one(name, datatype, shape, data)
    assert found.shape == shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("name", "datatype", "shape", "data", "said"),
    [
        ("x", "FP64", (2, 2), bytes(32), "expected datatype FP32, got 'FP64'"),
        ("x", "FP32", (2, 2), bytes(12), r"\[2, 2\] of FP32 is 16 bytes, got 12"),
        ("x", "FP32", (2, -2), bytes(16), "a size below zero"),
        ("x", "FP32", (1 << 62,) * 9, [], "a size above 281,474,976,710,656"),
        ("x", "FP32", (10**4299,) * 33, [], "at most 32 sizes, got 33"),
        ("x", "FP32", (2, 2), [1, 2, 3], r"\[2, 2\] has 4 elements, got 3"),
        ("x", "FP32", (2, 2), [[1], [2, 3]], "ragged"),
        ("x", "FP32", (1, 1), ["1"], "not all of FP32"),
        ("x", "FP32", (1, 1), [None], "not all of FP32"),
        ("n", "UINT8", (2,), [1, 256], "numbers that UINT8 does not hold"),
        ("n", "UINT8", (2,), [1, -1], "numbers that UINT8 does not hold"),
        ("n", "UINT8", (2,), [1, 2.5], "not all of UINT8"),
        ("h", "FP16", (1,), [1.0], "JSON has no FP16"),
        ("w", "BYTES", (2,), ["cat", 1], "not all strings"),
        ("w", "BYTES", (1,), b"\x05\0\0\0cat", "cut off"),
        ("w", "BYTES", (1,), b"\x05\0", "has no length"),
    ],
)
def test_what_does_not_fit_is_refused(
    name: str, datatype: str, shape: tuple[int, ...], data: Any, said: str
) -> None:
    with pytest.raises(InputMismatchError, match=said):
        _one(name, datatype, shape, data)


def test_strings_are_refused_before_numpy_makes_them_of_one_length() -> None:
    words = ["x" * 100_000, *["y"] * 1000]
    tracemalloc.start()
    with pytest.raises(InputMismatchError, match="not all of UINT8"):
        _one("n", "UINT8", (1001,), words)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_all_problems_are_told_at_once() -> None:
    given = [
        GivenTensor("x", "FP32", (2, 2), bytes(16)),
        GivenTensor("x", "FP32", (2, 2), bytes(16)),
        GivenTensor("y", "FP32", (1,), bytes(4)),
    ]
    with pytest.raises(InputMismatchError) as caught:
        arrays_of(given, [_X, _N])
    assert caught.value.details == (
        "input 'x': it is there twice",
        "input 'y': the model has no such input",
        "input 'n' is missing",
    )
    assert "x: float32[2,2], n: uint8[2]" in caught.value.hint


def test_labels_are_strings_on_both_ways() -> None:
    packed = as_bytes(np.array(["dög", ""], object))
    assert packed == b"\x04\0\0\0d\xc3\xb6g\0\0\0\0"
    assert _one("w", "BYTES", (2,), packed).tolist() == [b"d\xc3\xb6g", b""]
    ((spec, words),) = results_of({"w": np.array([1, 0])}, [_W], [])
    assert datatype_of(spec) == "BYTES"
    assert as_list(spec, words) == ["dög", "cat"]


def test_what_json_cannot_say_is_refused() -> None:
    for spec, array in ((_X, np.array([[np.nan, 1]], "f4")), (_H, np.ones(1, "f2"))):
        with pytest.raises(UsageError, match="JSON") as caught:
            as_list(spec, array)
        assert "binary" in caught.value.hint
    with pytest.raises(UsageError, match="no output 'z'"):
        results_of({}, [_X], ["z"])
    with pytest.raises(UsageError, match="an output is asked for twice"):
        results_of({}, [_X], ["x", "x"])
