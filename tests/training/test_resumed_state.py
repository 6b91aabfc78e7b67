"""Training goes on where an exported model, with the state of its optimizer, left off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import popc
import popc_runtime
from popc_runtime.errors import ModelError

_MODEL = """
    <ir_version: 8, opset_import: ["": 13]>
    g (float[2, 3] x) => (float[2, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { y = MatMul (x, w) }
"""
_X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def _compiled(model: onnx.ModelProto, kind: str = "adam", **options: Any) -> popc.Archive:
    optimizer = {"type": kind, "learning_rate": 0.1}
    loss = {"type": "l1", "input": "y", "reduction": "mean"}
    return popc.compile(model, options=options, train={"loss": loss, "optimizer": optimizer})


def _exported(path: Path) -> tuple[onnx.ModelProto, Any]:
    """The model after two of four steps, and the weights after all."""
    _compiled(onnx.parser.parse_model(_MODEL)).save(path / "train.popx")
    program = popc_runtime.load(path / "train.popx")
    for step in range(4):
        if step == 2:
            popc.export_onnx(
                path / "train.popx", path / "half.onnx", state=program, optimizer_state=True
            )
        program.run({"x": _X})
    return onnx.load(path / "half.onnx"), program.state.read()["w"]


def test_the_state_of_the_optimizer_goes_on(tmp_path: Path) -> None:
    model, expected = _exported(tmp_path)
    assert {"Accl1___w", "Accl2___w"} < {item.name for item in model.graph.initializer}
    program = popc_runtime.load(_compiled(model))
    for _ in range(2):
        program.run({"x": _X})
    np.testing.assert_array_equal(program.state.read()["w"], expected)


def test_a_state_of_another_type_is_refused(tmp_path: Path) -> None:
    model, _ = _exported(tmp_path)
    for item in model.graph.initializer:
        if item.name == "Accl1___w":
            item.dims[:] = [2, 3]
    with pytest.raises(ModelError, match=r"float32\[2,3\] for Accl1___w, but .* float32\[3,2\]"):
        _compiled(model)


def test_parts_of_replicas_begin_as_ever(tmp_path: Path) -> None:
    model, _ = _exported(tmp_path)
    location = {"replicated_tensor_sharding": 1, "min_elements_for_replicated_tensor_sharding": 1}
    archive = _compiled(model, replicated_graph_count=2, optimizer_state_tensor_location=location)
    assert any("Accl1___w begins as 0" in note for note in archive.notes)
