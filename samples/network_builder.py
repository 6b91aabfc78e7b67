"""ONNX graphs that grow node by node, with arbitrary weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["NetworkBuilder"]

_OPSET = 21
_IR_VERSION = 10


class NetworkBuilder:
    """A graph that grows node by node; values are names.

    Attributes:
        place: Chip and pipeline stage of the nodes that follow; None if the model says nothing.
        training: Whether normalisations compute statistics of the batch.
    """

    def __init__(self, name: str, dtype: str, *, training: bool = False) -> None:
        self.dtype = np.dtype(dtype)
        self.place: tuple[int, int] | None = None
        self.training = training
        self._name = name
        self._noise = np.random.default_rng(0).standard_normal(1 << 16).astype(self.dtype)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def __call__(
        self,
        op_type: str,
        *inputs: str,
        name: str = "",
        state: Sequence[str] = (),
        **attributes: Any,
    ) -> str:
        """The first output of a new node; ``state`` names further ones."""
        output = name or f"{op_type.lower()}_{len(self._nodes)}"
        if self.place:
            attributes |= dict(zip(("__ipu_number", "__pipeline_stage"), self.place, strict=True))
        node = helper.make_node(op_type, inputs, [output, *state], name=output, **attributes)
        self._nodes.append(node)
        return output

    def weight(self, name: str, *shape: int, scale: float = 1.0) -> str:
        """A weight of noise."""
        array = np.resize(self._noise, shape) * self.dtype.type(scale)
        return self._keep(name, array)

    def full(self, name: str, *shape: int, value: float = 0.0) -> str:
        """A weight with equal numbers."""
        return self._keep(name, np.full(shape, value, self.dtype))

    def integers(self, name: str, *values: int) -> str:
        """A constant list of integers."""
        return self._keep(name, np.array(values, np.int64))

    def scalar(self, name: str, value: int) -> str:
        """A constant integer."""
        return self._keep(name, np.array(value, np.int64))

    def truth(self, name: str) -> str:
        """A constant that is true."""
        return self._keep(name, np.array(True))  # noqa: FBT003

    def _keep(self, name: str, array: np.ndarray[Any, Any]) -> str:
        self._weights.append(numpy_helper.from_array(array, name))
        return name

    def linear(self, x: str, name: str, inputs: int, outputs: int) -> str:
        """x W + b over the last dimension."""
        product = self.product(x, name, inputs, outputs)
        return self("Add", product, self.full(f"{name}.bias", outputs), name=f"{name}.out")

    def product(self, x: str, name: str, inputs: int, outputs: int) -> str:
        """x W over the last dimension."""
        weight = self.weight(f"{name}.weight", inputs, outputs, scale=inputs**-0.5)
        return self("MatMul", x, weight, name=f"{name}.product")

    def layer_norm(self, x: str, name: str, size: int) -> str:
        """Normalise the last dimension."""
        scale = self.full(f"{name}.scale", size, value=1.0)
        bias = self.full(f"{name}.bias", size)
        return self("LayerNormalization", x, scale, bias, axis=-1, name=f"{name}.out")

    def filters(self, name: str, inputs: int, outputs: int, kernel: int, groups: int = 1) -> str:
        """The weight of a convolution with windows of ``kernel`` by ``kernel``."""
        scale = (2 * groups / (kernel * kernel * inputs)) ** 0.5
        return self.weight(name, outputs, inputs // groups, kernel, kernel, scale=scale)

    def pixels(self, size: int) -> tuple[onnx.ValueInfoProto, str]:
        """An input of bytes, 0 to 255, and the same as numbers up to 1."""
        image = self.floats("image", "batch", 3, size, size)
        image.type.tensor_type.elem_type = onnx.TensorProto.UINT8
        numbers = self("Cast", "image", to=helper.np_dtype_to_tensor_dtype(self.dtype))
        return image, self("Mul", numbers, self.full("image.scale", value=1 / 255))

    def classify(self, x: str, channels: int) -> onnx.ValueInfoProto:
        """The output logits [batch, 1000] of feature maps."""
        x = self("Flatten", self("GlobalAveragePool", x))
        self("Identity", self.linear(x, "classifier", channels, 1000), name="logits")
        return self.floats("logits", "batch", 1000)

    def model(
        self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]
    ) -> onnx.ModelProto:
        """The finished model."""
        graph = helper.make_graph(self._nodes, self._name, inputs, outputs, self._weights)
        opsets = [helper.make_opsetid("", _OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)

    def floats(self, name: str, *shape: int | str) -> onnx.ValueInfoProto:
        """An input or output of the model's type."""
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(self.dtype), shape
        )
