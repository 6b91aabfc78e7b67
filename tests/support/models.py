"""Small ONNX models that several test files use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popc
import popc_runtime

__all__ = ["affine", "counter_loop", "executable"]


def affine(rows: int | str = 2, columns: int = 3) -> onnx.ModelProto:
    """y = relu(x) * scale + offset over float32[rows, columns]."""
    scale = np.linspace(1, 2, columns, dtype=np.float32)
    offset = np.linspace(-1, 1, columns, dtype=np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("Mul", ["r", "scale"], ["m"]),
            helper.make_node("Add", ["m", "offset"], ["y"]),
        ],
        "affine",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, columns])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])],
        [numpy_helper.from_array(scale, "scale"), numpy_helper.from_array(offset, "offset")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def counter_loop() -> onnx.ModelProto:
    """y = x doubled ``n`` times, n a run-time value; two states that swap."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["still"]),
            helper.make_node("Add", ["a", "a"], ["doubled"]),
            helper.make_node("Identity", ["b"], ["other"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("a", TensorProto.FLOAT, [2]),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("doubled", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("other", TensorProto.FLOAT, [2]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "p", "q"], ["pn", "qn"], body=body)],
        "counter_loop",
        [
            helper.make_tensor_value_info("n", TensorProto.INT64, []),
            helper.make_tensor_value_info("p", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("q", TensorProto.FLOAT, [2]),
        ],
        [
            helper.make_tensor_value_info("pn", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("qn", TensorProto.FLOAT, [2]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def executable(model: onnx.ModelProto, folder: Path, **options: object) -> popc_runtime.Executable:
    """``model`` compiled, saved, and loaded."""
    path = folder / "model.popx"
    popc.compile(model, options=options or None).save(path, force=True)
    return popc_runtime.load(path)


def expected_affine(x: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> object:
    """What `affine` computes, with numpy."""
    columns = x.shape[-1]
    scale = np.linspace(1, 2, columns, dtype=np.float32)
    return pytest.approx(np.maximum(x, 0) * scale + np.linspace(-1, 1, columns), abs=1e-6)
