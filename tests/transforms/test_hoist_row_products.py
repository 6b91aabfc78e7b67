"""The pass that multiplies a whole sequence before the loop over it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popc
import popc_runtime
from popc.ir import Graph
from popc.transforms.hoist_row_products import HoistRowProducts
from popc.transforms.invariant_states import InvariantStates
from tests.support.oracles import import_graph, run_onnxruntime

_STEPS, _BATCH, _WIDTH, _HIDDEN = 5, 2, 3, 4


def _value(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _recurrent(*, carried: bool, steps: int = _STEPS) -> onnx.ModelProto:
    """h = tanh(x[i] @ w + h) for ``steps`` steps; w is a state of the loop or seen from outside."""
    weights = "w_state" if carried else "w"
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["row"], axis=0),
        helper.make_node("MatMul", ["row", weights], ["p"]),
        helper.make_node("Add", ["p", "h"], ["s"]),
        helper.make_node("Tanh", ["s"], ["h_out"]),
        helper.make_node("Identity", ["h_out"], ["scan"]),
        helper.make_node("Identity", ["go"], ["go_out"]),
    ]
    state = _value("h", _BATCH, _HIDDEN), _value("w_state", _WIDTH, _HIDDEN)
    count = 2 if carried else 1
    body = helper.make_graph(
        nodes,
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            *state[:count],
        ],
        [
            helper.make_tensor_value_info("go_out", TensorProto.BOOL, []),
            _value("h_out", _BATCH, _HIDDEN),
            *(state[1:] if carried else ()),
            _value("scan", _BATCH, _HIDDEN),
        ],
    )
    finals = ["last", "w_final"][:count]
    loop = helper.make_node("Loop", ["n", "", "h0", "w"][: 2 + count], [*finals, "y"], body=body)
    w = np.random.default_rng(1).standard_normal((_WIDTH, _HIDDEN)).astype(np.float32)
    graph = helper.make_graph(
        [loop],
        "recurrent",
        [_value("x", _STEPS, _BATCH, _WIDTH), _value("h0", _BATCH, _HIDDEN)],
        [_value("last", _BATCH, _HIDDEN), _value("y", steps, _BATCH, _HIDDEN)],
        [
            numpy_helper.from_array(np.asarray(steps, np.int64), "n"),
            numpy_helper.from_array(w, "w"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _hoisted(model: onnx.ModelProto) -> Graph:
    graph = import_graph(model)
    InvariantStates()(graph, check=True)
    HoistRowProducts()(graph, check=True)
    return graph


def _products(graph: Graph) -> list[int]:
    """How many products each graph has, outer first."""
    return [sum(op.op_type == "MatMul" for op in nested.ops) for nested in graph.walk()]


@pytest.mark.parametrize("carried", [False, True])
def test_products_leave_the_loop_with_the_same_results(*, carried: bool, tmp_path: Path) -> None:
    model = _recurrent(carried=carried)
    assert _products(_hoisted(model)) == [1, 0]
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((_STEPS, _BATCH, _WIDTH)).astype(np.float32),
        "h0": rng.standard_normal((_BATCH, _HIDDEN)).astype(np.float32),
    }
    popc.compile(model).save(tmp_path / "loop.popx")
    results = popc_runtime.load(tmp_path / "loop.popx").run(feeds)
    for name, expected in zip(("last", "y"), run_onnxruntime(model, feeds), strict=True):
        np.testing.assert_allclose(results[name], expected, rtol=1e-5, atol=1e-6)


def test_a_short_loop_multiplies_only_the_rows_it_needs() -> None:
    assert _products(_hoisted(_recurrent(carried=False, steps=_STEPS - 1))) == [0, 1]
