"""The networks of the training samples, as ONNX models with random weights.

Frameworks export such models; building them here keeps the samples free of one.  The batch is a
symbolic dimension, so that one model serves training and inference with batches of any size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["digits_cnn", "digits_mlp", "photo_cnn", "sorting_transformer"]

_OPSET = 20
_IR_VERSION = 10


class _Builder:
    """A graph that grows node by node; values are names."""

    def __init__(self, name: str, seed: int) -> None:
        self._name = name
        self._rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, np.ndarray[Any, Any]] = {}

    def __call__(self, op_type: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        output = name or f"{op_type.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op_type, inputs, [output], **attributes))
        return output

    def normal(self, name: str, *shape: int, scale: float) -> str:
        """A weight with normally distributed numbers."""
        self._weights[name] = (scale * self._rng.standard_normal(shape)).astype(np.float32)
        return name

    def full(self, name: str, *shape: int, value: float = 0.0) -> str:
        """A weight with equal numbers."""
        self._weights[name] = np.full(shape, value, np.float32)
        return name

    def integers(self, name: str, *values: int) -> str:
        """A constant list of integers."""
        self._weights[name] = np.array(values, np.int64)
        return name

    def scalar(self, name: str, value: float) -> str:
        """A constant number."""
        self._weights[name] = np.array(value, np.float32)
        return name

    def linear(self, x: str, name: str, inputs: int, outputs: int) -> str:
        """x W + b over the last dimension."""
        weight = self.normal(f"{name}.weight", inputs, outputs, scale=(2 / inputs) ** 0.5)
        bias = self.full(f"{name}.bias", outputs)
        return self("Add", self("MatMul", x, weight), bias)

    def conv(self, x: str, name: str, inputs: int, outputs: int) -> str:
        """A convolution of 3 x 3 that keeps the size, and Relu."""
        scale = (2 / (9 * inputs)) ** 0.5
        weight = self.normal(f"{name}.weight", outputs, inputs, 3, 3, scale=scale)
        bias = self.full(f"{name}.bias", outputs)
        return self("Relu", self("Conv", x, weight, bias, pads=[1, 1, 1, 1]))

    def layer_norm(self, x: str, name: str, size: int) -> str:
        """Normalise the last dimension."""
        scale = self.full(f"{name}.scale", size, value=1.0)
        return self("LayerNormalization", x, scale, self.full(f"{name}.bias", size), axis=-1)

    def model(
        self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]
    ) -> onnx.ModelProto:
        """The finished model."""
        weights = [numpy_helper.from_array(array, key) for key, array in self._weights.items()]
        graph = helper.make_graph(self._nodes, self._name, inputs, outputs, weights)
        opsets = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        onnx.checker.check_model(model, full_check=True)
        return model


def _floats(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)


def digits_cnn(seed: int = 0) -> onnx.ModelProto:
    """image [batch, 1, 8, 8] -> logits [batch, 10]: three convolutions, two linear layers."""
    b = _Builder("digits_cnn", seed)
    x = b.conv("image", "conv1", 1, 16)
    x = b("MaxPool", b.conv(x, "conv2", 16, 32), kernel_shape=[2, 2], strides=[2, 2])
    x = b("MaxPool", b.conv(x, "conv3", 32, 64), kernel_shape=[2, 2], strides=[2, 2])
    x = b("Relu", b.linear(b("Flatten", x), "fc1", 256, 128))
    b("Identity", b.linear(x, "fc2", 128, 10), name="logits")
    return b.model([_floats("image", "batch", 1, 8, 8)], [_floats("logits", "batch", 10)])


def digits_mlp(seed: int = 0, hidden: int = 256) -> onnx.ModelProto:
    """image [batch, 64] -> logits [batch, 10]: three linear layers."""
    b = _Builder("digits_mlp", seed)
    x = b("Relu", b.linear("image", "fc1", 64, hidden))
    x = b("Relu", b.linear(x, "fc2", hidden, hidden))
    b("Identity", b.linear(x, "fc3", hidden, 10), name="logits")
    return b.model([_floats("image", "batch", 64)], [_floats("logits", "batch", 10)])


def photo_cnn(seed: int = 0) -> onnx.ModelProto:
    """image [batch, 3, 32, 32] -> logits [batch, 10]: three convolutions, one linear layer."""
    b = _Builder("photo_cnn", seed)
    x, channels = "image", 3
    for layer, wanted in enumerate((32, 64, 128), 1):
        x = b.conv(x, f"conv{layer}", channels, wanted)
        x = b("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        channels = wanted
    b("Identity", b.linear(b("Flatten", x), "fc", 2048, 10), name="logits")
    return b.model([_floats("image", "batch", 3, 32, 32)], [_floats("logits", "batch", 10)])


def sorting_transformer(
    seed: int = 0, *, length: int = 10, size: int = 64, heads: int = 4, layers: int = 2
) -> onnx.ModelProto:
    """tokens [batch, length], digits -> logits [batch, 10, length] of the digits in order."""
    b = _Builder("sorting_transformer", seed)
    vocabulary = b.normal("embedding", 10, size, scale=1.0)
    position = b.normal("position", length, size, scale=1.0)
    x = b("Add", b("Gather", vocabulary, "tokens"), position)
    split = b.integers("split", 0, length, heads, size // heads)
    merge = b.integers("merge", 0, length, size)
    scale = b.scalar("scale", (size // heads) ** -0.5)
    for layer in range(layers):
        name = f"layer{layer}"
        y = b.layer_norm(x, f"{name}.norm1", size)
        q, k, v = (b("Reshape", b.linear(y, f"{name}.{part}", size, size), split) for part in "qkv")
        scores = b(
            "MatMul",
            b("Transpose", q, perm=[0, 2, 1, 3]),
            b("Transpose", k, perm=[0, 2, 3, 1]),
        )
        weights = b("Softmax", b("Mul", scores, scale), axis=-1)
        mixed = b("MatMul", weights, b("Transpose", v, perm=[0, 2, 1, 3]))
        joined = b("Reshape", b("Transpose", mixed, perm=[0, 2, 1, 3]), merge)
        x = b("Add", x, b.linear(joined, f"{name}.out", size, size))
        y = b.layer_norm(x, f"{name}.norm2", size)
        y = b("Gelu", b.linear(y, f"{name}.up", size, 4 * size))
        x = b("Add", x, b.linear(y, f"{name}.down", 4 * size, size))
    x = b.linear(b.layer_norm(x, "norm", size), "head", size, 10)
    b("Transpose", x, name="logits", perm=[0, 2, 1])
    tokens = helper.make_tensor_value_info("tokens", onnx.TensorProto.INT64, ["batch", length])
    return b.model([tokens], [_floats("logits", "batch", 10, length)])
