"""Recurrent layers train natively: the calls of their gradients are translated one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popc
import popc_runtime
from popc_runtime.native import Library

_STEPS, _BATCH, _WIDTH, _HIDDEN = 6, 4, 5, 16
_GATES: Final = {"RNN": 1, "GRU": 3, "LSTM": 4}
_LOSS: Final = {"type": "cross_entropy", "input": "logits", "label": "label"}


def _model(kind: str, attributes: dict[str, Any], inputs: tuple[str, ...]) -> onnx.ModelProto:
    """x [steps, batch, width] -> logits [batch, 3] of the last state."""
    random = np.random.default_rng(0)
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = _GATES[kind] * _HIDDEN
    shapes = {
        "w": (directions, rows, _WIDTH),
        "r": (directions, rows, _HIDDEN),
        "b": (directions, 2 * rows),
        "p": (directions, 3 * _HIDDEN),
        "fc": (directions * _HIDDEN, 3),
    }
    weights = {name: random.standard_normal(shape) / 3 for name, shape in shapes.items()}
    arrays = {name: array.astype(np.float32) for name, array in weights.items()}
    arrays["shape"] = np.array([_BATCH, directions * _HIDDEN])
    arrays["lengths"] = np.array([6, 2, 5, 1], np.int32)
    nodes = [
        helper.make_node(kind, inputs, ["", "h"], hidden_size=_HIDDEN, **attributes),
        helper.make_node("Transpose", ["h"], ["last"], perm=[1, 0, 2]),
        helper.make_node("Reshape", ["last", "shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "fc"], ["logits"]),
    ]
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [_STEPS, _BATCH, _WIDTH])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [_BATCH, 3])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items() if name in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("lengths", ["", "lengths"])
@pytest.mark.parametrize(
    ("kind", "attributes", "more"),
    [
        ("RNN", {}, ()),
        ("RNN", {"direction": "bidirectional"}, ()),
        ("GRU", {}, ()),
        ("GRU", {"linear_before_reset": 1, "direction": "reverse"}, ()),
        ("LSTM", {"direction": "bidirectional"}, ()),
        ("LSTM", {}, ("", "", "p")),
    ],
)
def test_layers_train_natively(
    library: Library,
    tmp_path: Path,
    kind: str,
    attributes: dict[str, Any],
    more: tuple[str, ...],
    lengths: str,
) -> None:
    del library  # there is one
    model = _model(kind, attributes, ("x", "w", "r", "b", lengths, *more))
    optimizer = {"type": "sgd", "learning_rate": 0.1}
    path = popc.compile(model, loss=_LOSS, optimizer=optimizer).save(tmp_path / "train.popx")
    random = np.random.default_rng(1)
    feeds = {
        "x": random.standard_normal((_STEPS, _BATCH, _WIDTH)).astype(np.float32),
        "label": random.integers(0, 3, _BATCH).astype(np.int32),
    }
    ours, numpys = (popc_runtime.load(path, engine=engine) for engine in ("native", "numpy"))
    for _ in range(5):
        loss, expected = (item.run(feeds)["loss"] for item in (ours, numpys))
        np.testing.assert_allclose(loss, expected, rtol=1e-5)
    times = ours.profile(feeds)
    assert {timing.opcode for timing in times if not timing.native} <= {"HostLoad", "HostStore"}
