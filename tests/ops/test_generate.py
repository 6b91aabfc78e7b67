"""Constants, ranges, windows: everything that is known before the first run."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from popc_runtime.errors import DataDependentShapeError, ModelError
from tests.support.oracles import assert_matches_onnxruntime, run_op

_T = onnx.TensorProto


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"value_float": 1.5}, np.float32(1.5)),
        ({"value_floats": [1.5, -2]}, np.array([1.5, -2], np.float32)),
        ({"value_int": 2**40}, np.int64(2**40)),
        ({"value_ints": [1, 2, 3]}, np.array([1, 2, 3])),
        (
            {"value": numpy_helper.from_array(np.array([[True], [False]]))},
            np.array([[True], [False]]),
        ),
    ],
)
def test_constant(attributes: dict[str, Any], expected: Any) -> None:
    (actual,) = run_op("Constant", [], attributes)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(actual, expected)


def test_constant_of_bfloat16() -> None:
    tensor = helper.make_tensor("t", _T.BFLOAT16, (2,), [1.5, -3])
    np.testing.assert_array_equal(run_op("Constant", [], {"value": tensor})[0], [1.5, -3])


@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (3, 5, 7)])
@pytest.mark.parametrize(
    "value", [None, np.array([7], np.int8), np.array([True]), np.array([1.5], ml_dtypes.bfloat16)]
)
def test_constant_of_shape(shape: tuple[int, ...], value: Any) -> None:
    attributes = {} if value is None else {"value": numpy_helper.from_array(value)}
    (actual,) = run_op("ConstantOfShape", [np.array(shape, np.int64)], attributes, constants={0})
    expected = np.zeros(1, np.float32) if value is None else value
    assert actual.shape == shape
    np.testing.assert_array_equal(actual, np.full(shape, expected.item(), actual.dtype))


def test_run_time_shape_is_refused() -> None:
    with pytest.raises(DataDependentShapeError):
        run_op("ConstantOfShape", [np.array([3])])


def test_negative_shape_is_refused() -> None:
    with pytest.raises(ModelError) as caught:
        run_op("ConstantOfShape", [np.array([3, -1])], constants={0})
    assert "negative dimension" in str(caught.value)


@pytest.mark.parametrize(
    ("start", "limit", "delta"), [(0, 5, 1), (10, 4, -2), (1, 1, 1), (5, 1, 1), (0, 2000, 1)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int32", "int64"])
def test_range(start: int, limit: int, delta: int, dtype: str) -> None:
    operands = [np.array(value, dtype) for value in (start, limit, delta)]
    assert_matches_onnxruntime("Range", operands, constants={0, 1, 2})


@pytest.mark.parametrize(("start", "limit", "delta"), [(1, 2, 0.3), (0, -1, -0.125)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_range_of_fractions(start: float, limit: float, delta: float, dtype: str) -> None:
    operands = [np.array(value, dtype) for value in (start, limit, delta)]
    assert_matches_onnxruntime("Range", operands, constants={0, 1, 2})


def test_range_refusals() -> None:
    one = np.array(1, np.int64)
    with pytest.raises(DataDependentShapeError):
        run_op("Range", [one, one, one], constants={0, 2})
    with pytest.raises(ModelError) as caught:
        run_op("Range", [one, one, np.array(0)], constants={0, 1, 2})
    assert "delta" in str(caught.value)


@pytest.mark.parametrize("k", [-2, 0, 1, 9])
@pytest.mark.parametrize("dtype", [None, _T.INT64, _T.DOUBLE])
def test_eye_like(k: int, dtype: int | None) -> None:
    attributes = {"k": k} if dtype is None else {"k": k, "dtype": dtype}
    assert_matches_onnxruntime("EyeLike", [np.zeros((3, 4), np.float32)], attributes)


def test_eye_like_needs_two_dimensions() -> None:
    with pytest.raises(ModelError) as caught:
        run_op("EyeLike", [np.zeros(3, np.float32)])
    assert "2 dimensions" in str(caught.value)


@pytest.mark.parametrize("size", [0, 1, 2, 10, 401])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("name", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows(name: str, periodic: int, size: int) -> None:
    (actual,) = run_op(name, [np.array(size)], {"periodic": periodic}, constants={0})
    phase = np.arange(size) * 2 * np.pi / max(size if periodic else size - 1, 1)
    expected = {
        "HannWindow": 0.5 - 0.5 * np.cos(phase),
        "HammingWindow": 25 / 46 - 21 / 46 * np.cos(phase),
        "BlackmanWindow": 0.42 - 0.5 * np.cos(phase) + 0.08 * np.cos(2 * phase),
    }[name]
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_window_of_other_types() -> None:
    attributes = {"output_datatype": _T.DOUBLE}
    (actual,) = run_op("HannWindow", [np.array(8, np.int32)], attributes, constants={0})
    np.testing.assert_allclose(actual, np.hanning(9)[:8], atol=1e-15)


_MOST = 2**63 - 1
_VECTOR = np.zeros(4, np.float32)
_IMAGE = np.zeros((1, 1, 2, 2), np.float32)


@pytest.mark.parametrize(
    ("start", "limit", "delta"),
    [
        (-(2**63), _MOST, 2**62),
        (0, 2**62 + 1, 2**60),
        (-(2**62), 2**62 + 5, 2**61),
        (2**53 + 1, 2**53 + 4, 1),
        (_MOST, -(2**63), -(2**62)),
        (_MOST, _MOST - 3, -1),
        (5, 5, 1),
        (5, 4, 3),
    ],
)
def test_ranges_of_large_numbers(start: int, limit: int, delta: int) -> None:
    """As Python counts."""
    operands = [np.array(item, np.int64) for item in (start, limit, delta)]
    (y,) = run_op("Range", operands, constants={0, 1, 2})
    assert y.tolist() == list(range(start, limit, delta))


@pytest.mark.parametrize(
    ("op_type", "operands", "message"),
    [
        ("Range", [0, _MOST, 1], "max_computed_bytes"),
        ("Range", [-(2**63), _MOST, 1], "max_computed_bytes"),
        ("Range", [0.0, np.inf, 1.0], "no length"),
        ("Range", [0.0, np.nan, 1.0], "no length"),
        ("Range", [0.0, 1.0, np.nan], "no length"),
        ("Range", [-1.5e308, 1.5e308, 1e300], "no length"),
        ("Range", [0.0, 1e30, 1.0], "max_computed_bytes"),
        ("HannWindow", [2**40], "8,796,093,022,208 bytes"),
        ("HammingWindow", [_MOST], "max_computed_bytes"),
    ],
)
def test_results_that_are_too_large(op_type: str, operands: list[Any], message: str) -> None:
    arrays = [np.array(operand) for operand in operands]
    with pytest.raises(ModelError, match=message):
        run_op(op_type, arrays, constants=set(range(len(arrays))))


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes"),
    [
        ("Tile", [_VECTOR, np.array([2**62])], {}),
        ("Pad", [_VECTOR, np.array([2**62, 2**62])], {}),
        ("Resize", [_VECTOR, None, np.array([1e30], np.float32)], {}),
        ("Conv", [_IMAGE, _IMAGE], {"pads": [2**62] * 4}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_dimensions_that_no_int64_holds(
    op_type: str, operands: list[Any], attributes: dict[str, Any]
) -> None:
    with pytest.raises(
        ModelError, match=r"bytes, more than 4,398|pads must be at most|are possible"
    ):
        run_op(op_type, operands, attributes, opset=18, constants={1, 2})
