"""Tiny networks: layers, with one weight or many, convolutions, skips, a recurrence, attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from samples.networks import sorting_transformer

__all__ = ["NETWORKS"]


def _model(
    name: str, build: Callable[[Callable[..., str], Callable[..., str]], None], image: Sequence[int]
) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def weight(key: str, *shape: int) -> str:
        data = random.standard_normal(shape) / max(1, prod(shape[1:])) ** 0.5
        weights.append(numpy_helper.from_array(data.astype(np.float32), key))
        return key

    def node(op_type: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        output = name or f"{op_type.lower()}{len(nodes)}"
        attributes_ = {"pads": [1, 1, 1, 1]} if op_type == "Conv" else attributes
        output = f"{output}.node" if output.startswith("conv") else output
        more = [f"{output}.mean", f"{output}.var"] if op_type == "BatchNormalization" else []
        results = ["", output] if op_type == "GRU" else [output, *more]
        nodes.append(helper.make_node(op_type, inputs, results, output, **attributes_))
        return output

    build(node, weight)
    floats = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("image", floats, ["batch", *image])],
        [helper.make_tensor_value_info("logits", floats, ["batch", 10])],
        weights,
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _layers(node: Callable[..., str], weight: Callable[..., str], *, count: int = 2) -> None:
    x = "image"
    for layer in range(count):
        product = node("MatMul", x, weight(f"fc{layer}.weight", 16, 16))
        x = node("Tanh", node("Add", product, weight(f"fc{layer}.bias", 16)))
    node("MatMul", x, weight(f"fc{count}.weight", 16, 10), name="logits")


def _tied(node: Callable[..., str], weight: Callable[..., str]) -> None:
    x, matrix = "image", weight("shared", 16, 16)
    for layer in range(4):
        x = node("Tanh", node("Add", node("MatMul", x, matrix), weight(f"fc{layer}.bias", 16)))
    node("MatMul", x, weight("fc", 16, 10), name="logits")


def _images(node: Callable[..., str], weight: Callable[..., str]) -> None:
    x, channels = "image", 1
    for layer in range(2):
        x = node("Conv", x, weight(f"conv{layer}", 4, channels, 3, 3))
        statistics = [weight(f"norm{layer}.{word}", 4) for word in ("scale", "bias", "mean", "var")]
        x = node("Relu", node("BatchNormalization", x, *statistics, training_mode=1))
        channels = 4
    x = node("Flatten", node("GlobalAveragePool", x))
    node("MatMul", x, weight("fc", 4, 10), name="logits")


def _skips(node: Callable[..., str], weight: Callable[..., str]) -> None:
    x = "image"
    for layer in range(2):
        normalised = [weight(f"norm{layer}.{word}", 8) for word in ("scale", "bias")]
        y = node("LayerNormalization", x, *normalised, axis=-1)
        y = node("MatMul", y, weight(f"up{layer}", 8, 16))
        y = node("Mul", y, node("Sigmoid", y))
        x = node("Add", x, node("MatMul", y, weight(f"down{layer}", 16, 8)))
    node("MatMul", x, weight("head", 8, 10), name="logits")


def _recurrence(node: Callable[..., str], weight: Callable[..., str]) -> None:
    x = node("Transpose", "image", perm=[1, 0, 2])
    matrices = [weight("gru.w", 1, 24, 4), weight("gru.r", 1, 24, 8), weight("gru.b", 1, 48)]
    state = node("GRU", x, *matrices, hidden_size=8, linear_before_reset=1)
    x = node("Relu", node("MatMul", node("Squeeze", state), weight("fc", 8, 8)))
    node("MatMul", x, weight("head", 8, 10), name="logits")


NETWORKS: Final[Mapping[str, Callable[[], onnx.ModelProto]]] = {
    "mlp": lambda: _model("mlp", _layers, [16]),
    "deep": lambda: _model("deep", partial(_layers, count=5), [16]),
    "tied": lambda: _model("tied", _tied, [16]),
    "cnn": lambda: _model("cnn", _images, [1, 4, 4]),
    "residual": lambda: _model("residual", _skips, [8]),
    "recurrent": lambda: _model("recurrent", _recurrence, [3, 4]),
    "transformer": lambda: sorting_transformer(length=4, size=8, heads=2, layers=1),
}
