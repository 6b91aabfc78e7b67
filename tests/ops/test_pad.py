"""Pad in all modes and opset forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc.ir import TensorType
from popc.ops.build import infer_types
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType
from tests.support.oracles import assert_matches_onnxruntime, run_ir, run_op

_X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def _ints(*values: int) -> Array:
    return np.array(values, np.int64)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [(1, 0, 2, 0, 2, 1), (0, 1, 0, 0, -1, 3), (0, 0, 0, 0, 0, 0)])
def test_modes(mode: str, pads: tuple[int, ...]) -> None:
    assert_matches_onnxruntime("Pad", [_X, _ints(*pads)], {"mode": mode}, opset=19, constants=[1])


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_against_numpy(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    x = x.transpose(data.draw(st.permutations(range(x.ndim))))
    pads = data.draw(st.lists(st.integers(0, 9), min_size=2 * x.ndim, max_size=2 * x.ndim))
    pairs = list(zip(pads[: x.ndim], pads[x.ndim :], strict=True))
    for mode in ("constant", "edge", "reflect", "wrap"):
        (y,) = run_ir("Pad", [x], {"pads": tuple(pads), "mode": mode, "value": 0})
        np.testing.assert_array_equal(y, np.pad(x, pairs, mode=mode))


@pytest.mark.parametrize(
    ("opset", "attributes"),
    [
        (1, {"paddings": [0, 1, 0, 0, 0, 2]}),
        (2, {"pads": [0, 1, 0, 0, 0, 2], "value": 1.5}),
        (10, {"pads": [0, 1, 0, 0, 0, 2], "mode": "edge"}),
    ],
)
def test_attributes_of_old_opsets(opset: int, attributes: dict[str, Any]) -> None:
    (y,) = run_op("Pad", [_X], attributes, opset=opset)
    fill = {"mode": "edge"} if opset == 10 else {"constant_values": attributes.get("value", 0)}
    np.testing.assert_array_equal(y, np.pad(_X, [(0, 0), (1, 0), (0, 2)], **fill))


@pytest.mark.parametrize("constants", [(1, 3), (1, 2, 3)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "float16"])
def test_value_and_axes(constants: tuple[int, ...], dtype: str) -> None:
    value = np.array(2**60 + 1 if dtype == "int64" else 1).astype(dtype)
    operands = [_X.astype(dtype), _ints(2, 1, 0, 1), value, _ints(-1, 0)]
    (y,) = run_op("Pad", operands, opset=18, constants=constants)
    expected = np.pad(_X.astype(dtype), [(1, 1), (0, 0), (2, 0)], constant_values=value)
    np.testing.assert_array_equal(y, expected)


def test_minus_infinity_and_empty_operands() -> None:
    (y,) = run_ir(
        "Pad", [_X[:, :0]], {"pads": (0, 1, 0, 0, 0, 0), "mode": "constant", "value": float("-inf")}
    )
    np.testing.assert_array_equal(y, np.full((2, 1, 4), -np.inf, np.float32))


@pytest.mark.parametrize("opset", [13, 23])
@pytest.mark.parametrize(
    ("shape", "pads", "mode"),
    [
        ((0,), (-1, 1), "constant"),
        ((0,), (2, -1), "constant"),
        ((1,), (-2, 3), "constant"),
        ((2,), (4, -3), "constant"),
        ((2, 0, 0, 16), (-1, 2, 2, 0, 1, 2, -1, -1), "constant"),
        ((5, 0), (2, -1, 2, 1), "reflect"),
        ((5, 0), (2, 1, 2, -1), "edge"),
    ],
)
def test_more_is_cropped_than_there_is(
    shape: tuple[int, ...], pads: tuple[int, ...], mode: str, opset: int
) -> None:
    """The sum of dimension and pads stays the length of an axis that loses all that it had."""
    operands = [np.ones(shape, np.float32), _ints(*pads), np.asarray(9, np.float32)]
    assert_matches_onnxruntime("Pad", operands, {"mode": mode}, opset=opset, constants=[1])
    (y,) = run_op("Pad", operands, {"mode": mode}, opset=opset, constants=[1])
    sides = zip(shape, pads[: len(shape)], pads[len(shape) :], strict=True)
    assert y.shape == tuple(map(sum, sides))


@pytest.mark.parametrize(
    ("x", "pads", "mode", "message"),
    [
        (_X, (0, -4, 0, 0, 0, 0), "constant", "take more than dimension 1"),
        (_X, (0, -4, 0, 0, 3, 0), "wrap", "take more than dimension 1"),
        (_X, (0, 1), "constant", "needs 6 pads"),
        (_X[:, :0], (0, 1, 0, 0, 0, 0), "edge", "nothing to repeat"),
        (_X, (0, 1, 0, 0, 0, 0), "mirror", "'mode' is 'mirror'"),
    ],
)
def test_wrong_pads_and_modes_are_refused(
    x: Array, pads: tuple[int, ...], mode: str, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        run_op("Pad", [x, _ints(*pads)], {"mode": mode}, opset=13, constants=[1])


@pytest.mark.parametrize(
    ("pads", "says"),
    [
        ((0, 0, 0, 1 << 40), "dimension 1: borders repeat the 2 elements between them more than"),
        ((0, 0, 1, 1), ""),
    ],
)
def test_borders_of_many_parts_are_refused(pads: tuple[int, ...], says: str) -> None:
    types = (TensorType(DType.FLOAT32, (3, 2)),)
    attributes: dict[str, Any] = {"pads": pads, "mode": "wrap"}
    if not says:
        assert infer_types("Pad", types, attributes)[0].shape == (4, 3)
        return
    with pytest.raises(ModelError, match=says):
        infer_types("Pad", types, attributes)


def test_gradients_of_borders_of_many_parts_are_refused() -> None:
    grad = TensorType(DType.FLOAT32, (2002, 2002))
    attributes: dict[str, Any] = {"pads": (0, 0, 2000, 2000), "mode": "wrap"}
    with pytest.raises(ModelError, match="borders have 1,002,001 parts, and may have 65,536"):
        infer_types("PadGrad", (grad,), attributes)
