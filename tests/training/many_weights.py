"""A network of many weights of several types and sizes, and how programs train it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

import popc
import popc_runtime
from popc_runtime import VariableRole
from popc_runtime.format import Array
from tests.support.compiling import CHECKED

__all__ = ["LAYERS", "many_weights", "many_weights_program", "states_after"]

LAYERS: Final = 4
_WIDTH: Final = 6
_BATCH: Final = 3


def many_weights(layers: int = LAYERS, width: int = _WIDTH, half: int = 2) -> onnx.ModelProto:
    """Layers x <- x + tanh(x w + b) * s; ``half`` of them have weights in float16."""
    rng = np.random.default_rng(5)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    x = "x"
    for layer in range(layers):
        dtype = np.float16 if layer < half else np.float32
        shapes = {"w": (width, width), "b": (width,), "s": (1, width)}
        names = {kind: f"{kind}{layer}" for kind in shapes}
        for kind, shape in shapes.items():
            value = 0.4 * rng.standard_normal(shape)
            weights.append(numpy_helper.from_array(value.astype(dtype), names[kind]))
            if dtype == np.float16:
                cast = helper.make_node("Cast", [names[kind]], [f"{names[kind]}_wide"], to=1)
                nodes.append(cast)
                names[kind] += "_wide"
        parts = [f"{part}{layer}" for part in ("product", "sum", "tanh", "scaled", "x")]
        nodes += [
            helper.make_node("MatMul", [x, names["w"]], [parts[0]]),
            helper.make_node("Add", [parts[0], names["b"]], [parts[1]]),
            helper.make_node("Tanh", [parts[1]], [parts[2]]),
            helper.make_node("Mul", [parts[2], names["s"]], [parts[3]]),
            helper.make_node("Add", [x, parts[3]], [parts[4]]),
        ]
        x = parts[4]
    nodes += [
        helper.make_node("Sub", [x, "target"], ["error"]),
        helper.make_node("Mul", ["error", "error"], ["square"]),
        helper.make_node("ReduceMean", ["square"], ["loss"], keepdims=0),
    ]
    floats = onnx.TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info(name, floats, ["batch", width]) for name in ("x", "target")
    ]
    loss = helper.make_tensor_value_info("loss", floats, [])
    graph = helper.make_graph(nodes, "many", inputs, [loss], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def many_weights_program(
    folder: Path, optimizer: Mapping[str, Any], *, half: int = 2, **options: Any
) -> popc_runtime.Executable:
    """The network compiled for training and loaded."""
    archive = popc.compile(
        many_weights(half=half),
        dims={"batch": _BATCH},
        train={"loss": {"type": "identity", "input": "loss"}, "optimizer": dict(optimizer)},
        options={**CHECKED, **options},
    )
    return popc_runtime.load(archive.save(folder / "many.popx", force=True))


def states_after(program: popc_runtime.Executable, steps: int = 2) -> dict[str, Array]:
    """All outputs, weights and state after some steps with random inputs."""
    rng = np.random.default_rng(0)
    found: dict[str, Array] = {}
    for step in range(steps):
        feeds = {
            spec.name: rng.standard_normal(spec.shape).astype(np.float32) for spec in program.inputs
        }
        outputs = program.run(feeds)
        found |= {f"{name} of step {step}": value.copy() for name, value in outputs.items()}
    for role in (VariableRole.WEIGHT, VariableRole.OPTIMIZER_STATE):
        found |= program.state.read(role)
    return found
