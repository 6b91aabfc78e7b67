from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import one_node_model, run_model, run_op

_F32 = np.ones(2, np.float32)
_I64 = np.ones(2, np.int64)


@pytest.mark.parametrize(
    ("op_type", "inputs", "message"),
    [
        ("Relu", [], "Relu needs 1 inputs, but 0 are given"),
        ("Relu", [_F32, _F32], "Relu takes 1 inputs, but 2 are given"),
        ("Add", [None, _F32], r"input 0 \(A\) is required but missing"),
        ("Add", [_F32, _I64], "inputs 0 and 1 must have the same type, but are float32 and int64"),
        ("Sqrt", [_I64], r"input 0 \(X\) is int64, but may be float16, bfloat16, float32, float64"),
        ("Reshape", [_F32, _F32], r"input 1 \(shape\) is float32, but may be int64"),
        ("Concat", [_F32, _F32, _I64], "inputs 0 and 2 must have the same type"),
        ("Where", [_F32, _F32, _F32], r"input 0 \(condition\) is float32, but may be bool"),
    ],
)
def test_operands_that_do_not_fit(op_type: str, inputs: list[Any], message: str) -> None:
    attributes = {"axis": 0} if op_type == "Concat" else {}
    with pytest.raises(ModelError, match=message):
        run_op(op_type, inputs, attributes)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("Max", [_F32] * 5, {}),
        ("Clip", [_F32, None, _F32[0]], {}),
        ("Relu", [_F32, None], {}),
        ("Pow", [_F32, _I64], {}),
    ],
)
def test_operands_that_fit(op_type: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    (y,) = run_op(op_type, inputs, attributes)
    assert y.tolist() == [1, 1]


@pytest.mark.parametrize("opset", [8, 10])
def test_types_that_a_later_version_names(opset: int) -> None:
    (y,) = run_op("Max", [_I64, 2 * _I64], opset=opset)
    assert y.tolist() == [2, 2]


def test_loops_take_states_of_different_types() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["d"]),
            helper.make_node("Add", ["a", "a"], ["e"]),
            helper.make_node("Add", ["b", "b"], ["f"]),
        ],
        "body",
        [
            helper.make_tensor_value_info(name, kind, shape)
            for name, kind, shape in (("i", 7, []), ("c", 9, []), ("a", 1, [2]), ("b", 7, [2]))
        ],
        [
            helper.make_tensor_value_info(name, kind, shape)
            for name, kind, shape in (("d", 9, []), ("e", 1, [2]), ("f", 7, [2]))
        ],
    )
    inputs: list[Array | None] = [np.array(3), None, _F32, _I64]
    model = one_node_model("Loop", inputs, {"body": body}, outputs=2, constants=range(4))
    assert [array.tolist() for array in run_model(model, {})] == [[8, 8], [8, 8]]


def test_old_opsets_are_not_held_to_their_narrow_types() -> None:
    (y,) = run_op("Add", [_I64, _I64], opset=6)
    assert y.tolist() == [2, 2]
