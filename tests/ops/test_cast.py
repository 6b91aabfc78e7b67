"""Conversions: every pair of types, the ends of ranges, the forms of old opsets."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from popc_runtime.errors import ModelError, UnsupportedOpError
from popc_runtime.format import Array, DType
from popc_runtime.kernels import Scratch
from popc_runtime.kernels.core.blocking import conversion
from tests.support.oracles import assert_matches_onnxruntime, run_ir, run_op

_T = onnx.TensorProto
_NUMPY = {
    _T.BOOL: np.bool_,
    _T.INT8: np.int8,
    _T.INT16: np.int16,
    _T.INT32: np.int32,
    _T.INT64: np.int64,
    _T.UINT8: np.uint8,
    _T.UINT16: np.uint16,
    _T.UINT32: np.uint32,
    _T.UINT64: np.uint64,
    _T.FLOAT16: np.float16,
    _T.FLOAT: np.float32,
    _T.DOUBLE: np.float64,
}


@pytest.mark.parametrize("target", _NUMPY)
@pytest.mark.parametrize("source", _NUMPY.values())
def test_all_pairs(source: Any, target: int) -> None:
    values = np.array([0, 1, 2, 100, 127, 200, 65000, 3e9, 1e18, -1, -100, -40000, 2.5, -2.5, 0.3])
    if np.issubdtype(source, np.integer):
        info = np.iinfo(source)
        x = values[(values >= float(info.min)) & (values < float(info.max))].astype(source)
    else:
        with np.errstate(over="ignore"):
            x = values.astype(source)
    assert_matches_onnxruntime("Cast", [x.reshape(1, -1)], {"to": target}, opset=19, rtol=0, atol=0)


@pytest.mark.parametrize("target", [_T.INT8, _T.UINT8, _T.INT32, _T.INT64, _T.BOOL, _T.FLOAT16])
def test_values_that_do_not_fit(target: int) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 300.9, -300.9, 3e9, -3e9, 1e20], np.float32)
    assert_matches_onnxruntime("Cast", [x], {"to": target}, opset=19)


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.uint8, np.float16, np.float64])
def test_bfloat16(dtype: Any) -> None:
    x = np.array([0, 1, 3, 100], dtype)
    (narrow,) = run_op("Cast", [x], {"to": _T.BFLOAT16})
    np.testing.assert_array_equal(narrow, x.astype(np.float32))
    target = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    (back,) = run_op("Cast", [x.astype(ml_dtypes.bfloat16)], {"to": target})
    assert back.dtype == dtype
    np.testing.assert_array_equal(back, x)


def test_bfloat16_rounds_to_nearest_even() -> None:
    x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    (actual,) = run_op("Cast", [x], {"to": _T.BFLOAT16})
    np.testing.assert_array_equal(actual, x.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_target_was_a_name_before_opset_6() -> None:
    x = np.array([1.5, -1.5], np.float32)
    np.testing.assert_array_equal(run_op("Cast", [x], {"to": "INT32"}, opset=5)[0], [1, -1])
    with pytest.raises(ModelError) as caught:
        run_op("Cast", [x], {"to": "WORD"}, opset=5)
    assert "'WORD' does not exist" in str(caught.value)


def test_strings_are_refused() -> None:
    with pytest.raises(ModelError) as caught:
        run_op("Cast", [np.zeros(2, np.float32)], {"to": _T.STRING})
    assert "string" in str(caught.value)
    assert not isinstance(caught.value, UnsupportedOpError)


def test_cast_like_takes_the_type_of_its_second_input() -> None:
    (actual,) = run_op("CastLike", [np.array([2.9], np.float32), np.zeros((3, 2), np.int16)])
    assert actual.dtype == np.int16
    assert actual == [2]


def test_strided_source() -> None:
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32) * 9
    for view in (x.T, x[::-1, ::2], np.broadcast_to(x[0], (3, 6))):
        (actual,) = run_ir("Cast", [view], {"to": "int8"})
        np.testing.assert_array_equal(actual, view.astype(np.int8))
        (actual,) = run_ir("BitCast", [view], {"to": "uint32"})
        np.testing.assert_array_equal(actual, view.copy().view(np.uint32))


@pytest.mark.parametrize(
    ("dtype", "to", "expected"),
    [
        (ml_dtypes.bfloat16, _T.UINT16, [0x3F80, 0x7FA1, 0xFF80]),
        (ml_dtypes.bfloat16, _T.FLOAT16, None),
        (np.float32, _T.UINT32, [0x3F800000, 0x7FA10000, 0xFF800000]),
    ],
)
def test_bit_cast_keeps_every_bit(dtype: Any, to: int, expected: list[int] | None) -> None:
    bits = np.array([0x3F80, 0x7FA1, 0xFF80], np.uint16)  # 1, a signalling nan, -infinity
    x = (
        bits.view(dtype)
        if np.dtype(dtype).itemsize == 2
        else ((bits.astype(np.uint32) << 16).view(dtype))
    )
    (actual,) = run_op("BitCast", [x], {"to": to}, opset=26)
    wanted = bits if expected is None else expected
    np.testing.assert_array_equal(actual.view(f"u{x.itemsize}"), wanted)


def test_bit_cast_between_widths_is_refused() -> None:
    with pytest.raises(ModelError) as caught:
        run_op("BitCast", [np.zeros(2, np.float32)], {"to": _T.INT8}, opset=26)
    assert f"{DType.FLOAT32} and {DType.INT8} have different widths" in str(caught.value)


def _converted(x: Array, dtype: Any) -> Array:
    out = np.empty(x.shape, dtype)
    with np.errstate(all="ignore"):
        for call in conversion(out, x, Scratch()):
            call()
    return out


def _bits(array: Array) -> Array:
    return array.view(f"u{array.itemsize}")


def test_every_float16_becomes_the_same_float32() -> None:
    x = np.arange(1 << 16).astype(np.uint16).view(np.float16)
    for view in (x, x.reshape(256, 256).T):
        expected = view.astype(np.float32)
        np.testing.assert_array_equal(_bits(_converted(view, np.float32)), _bits(expected))


def test_float32_becomes_the_nearest_float16_ties_to_even() -> None:
    rng = np.random.default_rng(5)
    anything = rng.integers(0, 1 << 32, 1 << 17, dtype=np.uint64)
    exponents = rng.integers(0x32, 0x49, 1 << 17) << 24  # about the range of float16
    tails = rng.choice([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF], 1 << 17)  # at, below, above a half
    near = exponents | rng.integers(0, 1 << 11, 1 << 17) << 13 | tails
    for bits in (anything, near, near | 0x80000000):
        x = bits.astype(np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            expected = x.astype(np.float16)
        np.testing.assert_array_equal(_bits(_converted(x, np.float16)), _bits(expected))
