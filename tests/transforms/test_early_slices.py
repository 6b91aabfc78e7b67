"""Slices that move in front of what makes each row by itself: how far."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popc
import popc_runtime


def _chain(length: int) -> onnx.ModelProto:
    """A product, as many functions of its elements, and one of its rows."""
    functions = [
        helper.make_node("Sin" if index % 2 else "Neg", [f"t{index}"], [f"t{index + 1}"])
        for index in range(length)
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t0"]),
        *functions,
        helper.make_node("Slice", [f"t{length}", "first", "next", "axis"], ["row"]),
    ]
    numbers = {"first": 1, "next": 2, "axis": 0}
    weights = {"w": np.eye(4, dtype=np.float32), **{k: np.array([v]) for k, v in numbers.items()}}
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])],
        [helper.make_tensor_value_info("row", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("length", [1, 50, 2000])
def test_chains_of_any_length(length: int) -> None:
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    expected = x[1:2]
    for index in range(length):
        expected = np.sin(expected) if index % 2 else -expected
    [row] = popc_runtime.load(popc.compile(_chain(length)).to_bytes()).run({"x": x}).values()
    np.testing.assert_allclose(row, expected, rtol=1e-3, atol=1e-6)
