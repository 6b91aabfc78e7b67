"""Single layers as models, for comparing what they cost: `benchmarks.layers`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["Layer", "model_of"]

_DTYPES: Final = {"half": np.float16, "float": np.float32}
_REDUCTIONS: Final = {"add": "ReduceSum", "max": "ReduceMax", "square_add": "ReduceSumSquare"}
_GATES: Final = {"lstm": 4, "gru": 3}


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer, and the cycles that Poplar's model gives it.

    Attributes:
        kind: "product" with a matrix added, "reduction", "lstm" or "gru"; or with their gradients
            and the update of weights "dense", "conv" or "pool".
        rows: Of a product; the batch of others.
        field: Height and width of the input of a convolution or a pool.
        pads_ends: Whether what is padded is padded at the end of each axis, too.
        steps: Of a recurrent layer.
        shape, axes, operation: Of a reduction.
        tiles: That the layer has, if not all of the chip.
    """

    kind: str
    type: str
    groups: int
    rows: int
    field: tuple[int, int]
    inputs: int
    outputs: int
    kernel: tuple[int, int]
    stride: int
    pads: tuple[int, int]
    pads_ends: bool
    steps: int
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    operation: str
    tiles: int
    cycles: int

    @property
    def trained(self) -> bool:
        """True if its cycles are those of a step of training."""
        return self.kind in {"dense", "conv", "pool"}

    @property
    def family(self) -> str:
        """Layers that are planned alike."""
        if self.kind in {"reduction", "pool"}:
            return self.kind
        if self.kind != "conv":
            return f"{self.kind}, {self.type}"
        if self.groups > 1:
            return "conv, depthwise"
        if self.inputs < 8:
            return "conv of images"
        return "conv 1x1" if self.kernel == (1, 1) else "conv"

    def __str__(self) -> str:
        if self.kind == "reduction":
            return f"{self.kind}, {self.operation}: {self.shape}, axes {self.axes}"
        if self.kind in {"conv", "pool"}:
            field = f"{self.rows} x {self.inputs} x {self.field[0]} x {self.field[1]}"
            return f"{self.family}: {field}, {self.outputs} of {self.kernel}, stride {self.stride}"
        groups = f"{self.groups} x " if self.groups > 1 else ""
        steps = f", {self.steps} steps" if self.steps else ""
        sizes = f"{groups}{self.rows} x {self.inputs} x {self.outputs}"
        return f"{self.kind}, {self.type}: {sizes}{steps}"


def model_of(layer: Layer) -> onnx.ModelProto:
    """The layer; what it reads lies on the chip already, as in a network."""
    return _MODELS[layer.kind](layer)


def _dense(layer: Layer) -> onnx.ModelProto:
    lead = (layer.groups,) if layer.groups > 1 else ()
    shapes = {
        "x": (*lead, layer.rows, layer.inputs),
        "w": (*lead, layer.inputs, layer.outputs),
        "dy": (*lead, layer.rows, layer.outputs),
    }
    return _trained(helper.make_node("MatMul", ["x", "w"], ["y"]), shapes, layer.type)


def _window(layer: Layer) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Attributes of a window that moves over a field, and the shape of what results."""
    ends = layer.pads if layer.pads_ends else (0, 0)
    axes = zip(layer.field, layer.kernel, layer.pads, ends, strict=True)
    field = [(size + before + after - k) // layer.stride + 1 for size, k, before, after in axes]
    attributes = {"pads": [*layer.pads, *ends], "strides": [layer.stride] * 2}
    return attributes, (layer.rows, layer.outputs, *field)


def _conv(layer: Layer) -> onnx.ModelProto:
    window, result = _window(layer)
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=layer.groups, **window)
    shapes = {
        "x": (layer.rows, layer.inputs, *layer.field),
        "w": (layer.outputs, layer.inputs // layer.groups, *layer.kernel),
        "dy": result,
    }
    return _trained(node, shapes, layer.type)


def _pool(layer: Layer) -> onnx.ModelProto:
    window, result = _window(layer)
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=layer.kernel, **window)
    shapes = {"x": (layer.rows, layer.inputs, *layer.field), "dy": result}
    return _trained(node, shapes, layer.type)


def _product(layer: Layer) -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["ab"]),
        helper.make_node("Add", ["ab", "c"], ["y"]),
    ]
    weights = {"b": (layer.inputs, layer.outputs), "c": (layer.rows, layer.outputs)}
    read, made = {"a": (layer.rows, layer.inputs)}, {"y": (layer.rows, layer.outputs)}
    return _model(nodes, read, made, weights, layer.type)


def _reduction(layer: Layer) -> onnx.ModelProto:
    node = helper.make_node(_REDUCTIONS[layer.operation], ["x", "axes"], ["y"], keepdims=0)
    kept = [size for axis, size in enumerate(layer.shape) if axis not in layer.axes]
    model = _model([node], {"x": layer.shape}, {"y": kept}, {}, layer.type)
    axes = numpy_helper.from_array(np.array(layer.axes, np.int64), "axes")
    model.graph.initializer.append(axes)
    return model


def _recurrent(layer: Layer) -> onnx.ModelProto:
    node = helper.make_node(
        layer.kind.upper(), ["x", "w", "r", "b"], ["y"], hidden_size=layer.outputs
    )
    rows = _GATES[layer.kind] * layer.outputs
    weights = {
        "w": (1, rows, layer.inputs),
        "r": (1, rows, layer.outputs),
        "b": (1, 2 * rows),
    }
    read = {"x": (layer.steps, layer.rows, layer.inputs)}
    made = {"y": (layer.steps, 1, layer.rows, layer.outputs)}
    return _model([node], read, made, weights, layer.type)


def _trained(
    node: onnx.NodeProto, variables: Mapping[str, Sequence[int]], type_: str
) -> onnx.ModelProto:
    """A model whose gradient by the layer's result is the variable ``dy``."""
    nodes = [
        node,
        helper.make_node("Mul", ["y", "dy"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted"], ["loss"], keepdims=0),
    ]
    return _model(nodes, {}, {"loss": ()}, variables, type_)


def _model(
    nodes: Sequence[onnx.NodeProto],
    read: Mapping[str, Sequence[int]],
    made: Mapping[str, Sequence[int]],
    weights: Mapping[str, Sequence[int]],
    type_: str,
) -> onnx.ModelProto:
    dtype = _DTYPES[type_]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    starts, ends = [
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in tensors.items()]
        for tensors in (read, made)
    ]
    held = [numpy_helper.from_array(np.ones(shape, dtype), name) for name, shape in weights.items()]
    graph = helper.make_graph(nodes, "layer", starts, ends, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


_MODELS: Final[Mapping[str, Callable[[Layer], onnx.ModelProto]]] = {
    "conv": _conv,
    "dense": _dense,
    "gru": _recurrent,
    "lstm": _recurrent,
    "pool": _pool,
    "product": _product,
    "reduction": _reduction,
}
