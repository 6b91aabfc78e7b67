"""The classic image networks that come inside the onnx package, with weights worth computing on.

The package stores them "light": every weight is a ConstantOfShape.  With equal weights all channels
are the same and mistakes cancel out, so each is replaced by seeded random numbers: variance 2 over
the number of inputs for what is multiplied by activations (He et al. 2015), so that the signal
neither dies nor explodes, and values about 1 for scales and variances.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from popc_runtime.format import Array
from tests.support.oracles import run_onnxruntime

__all__ = ["NAMES", "light_model", "picture"]

_FOLDER: Final = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NAMES: Final = tuple(sorted(path.stem for path in _FOLDER.glob("light_*.onnx")))
_FORWARDING: Final = ("Identity", "Reshape", "Unsqueeze")

# How to draw a weight of a shape, for an operand of a node.
_Draw: TypeAlias = Callable[[np.random.Generator, tuple[int, ...]], Array]


def picture(seed: int = 0) -> Array:
    """Four coloured fields with a texture: float32[1, 3, 224, 224] in about [-2.5, 2.5]."""
    random = np.random.default_rng(seed)
    fields = random.uniform(-2, 2, (1, 3, 2, 2)).repeat(112, axis=2).repeat(112, axis=3)
    texture = random.uniform(-0.5, 0.5, (1, 3, 28, 28)).repeat(8, axis=2).repeat(8, axis=3)
    return (fields + texture).astype(np.float32)


def light_model(name: str) -> onnx.ModelProto:
    """One of `NAMES` with random weights; the logits are a further output."""
    model = onnx.load(_FOLDER / f"{name}.onnx")
    graph = model.graph
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(
            _draw_for(graph, node.output[0])(random, tuple(shapes[node.input[0]])).astype(
                np.float32
            ),
            node.output[0],
        )
        for node in graph.node
        if node.op_type == "ConstantOfShape"
    ]
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    read = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    inputs = [declared for declared in graph.input if declared.name in read]
    for field in (graph.node, graph.initializer, graph.input):
        del field[:]
    graph.node.extend(nodes)
    graph.initializer.extend([*kept, *weights])
    graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 4)  # initializers need not be inputs
    _spread_logits(model)
    return model


def _draw_for(graph: onnx.GraphProto, name: str) -> _Draw:
    """How to draw the weight ``name``, by the operand that it ends up as."""
    node = next(node for node in graph.node if name in node.input)
    while node.op_type in _FORWARDING:
        name = node.output[0]
        node = next(node for node in graph.node if name in node.input)
    return _DRAWS.get((node.op_type, list(node.input).index(name)), _near(0))


def _near(centre: float) -> _Draw:
    spread = 0.5 if centre else 0.1
    return lambda random, shape: random.uniform(centre - spread, centre + spread, shape)


def _he(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Weights of shape [outputs, inputs, ...]."""
    scale = np.float32(sqrt(2 / prod(shape[1:])))
    return random.standard_normal(shape, np.float32) * scale


_DRAWS: Final[dict[tuple[str, int], _Draw]] = {
    ("BatchNormalization", 1): _near(1),  # scale
    ("BatchNormalization", 4): _near(1),  # variance
    ("Conv", 1): _he,
    ("Gemm", 1): _he,
    ("Mul", 1): _near(1),
}


def _spread_logits(model: onnx.ModelProto) -> None:
    """Move and scale the last Gemm so that its softmax is neither flat nor saturated.

    Random features are much alike for all pictures, and softmax would pick the same class with
    certainty.  So the mean over two pictures is subtracted and their difference scaled up.
    """
    gemm = next((node for node in reversed(model.graph.node) if node.op_type == "Gemm"), None)
    if gemm is None:
        return
    model.graph.output.append(helper.make_tensor_value_info(gemm.output[0], 1, [1, 1000]))
    weights = {tensor.name for tensor in model.graph.initializer}
    (name,) = (declared.name for declared in model.graph.input if declared.name not in weights)
    first, second = (run_onnxruntime(model, {name: picture(seed)})[-1][0] for seed in (1, 2))
    producers = {name: node for node in model.graph.node for name in node.output}
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    weight, bias = (tensors[_source(operand, producers)] for operand in gemm.input[1:])
    scale = np.float32(1 / np.std((first - second) / 2))
    scaled = numpy_helper.to_array(weight) * scale
    moved = (numpy_helper.to_array(bias) - ((first + second) / 2).reshape(bias.dims)) * scale
    weight.CopyFrom(numpy_helper.from_array(scaled, weight.name))
    bias.CopyFrom(numpy_helper.from_array(moved, bias.name))


def _source(name: str, producers: dict[str, onnx.NodeProto]) -> str:
    """The weight that reaches ``name`` through nodes that only forward it."""
    while name in producers:
        name = producers[name].input[0]
    return name
