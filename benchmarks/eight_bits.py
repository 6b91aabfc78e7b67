"""Products of eight-bit floats, as PopRT makes them of a model in half precision.

Weights of convolutions and matrix products are stored in F143, and other operands are converted in
front, scores and probabilities of attention among them.  The first convolution stays as it is: it
reads pixels.  Normalisations after a convolution become its biases,
as their factors go into weights before these are rounded; here weights are noise, so they need not.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["in_eight_bits"]

_NARROW = ml_dtypes.float8_e4m3fnuz
_EXPONENT = "eight_bits.exponent"
_PRODUCTS = ("Conv", "MatMul")


def in_eight_bits(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of ``model`` whose products take operands of eight bits."""
    weights = {item.name: item for item in model.graph.initializer}
    nodes = [_as_bias(node, weights) for node in model.graph.node]
    first = next((node for node in nodes if node.op_type == "Conv"), None)
    weights[_EXPONENT] = helper.make_tensor(_EXPONENT, onnx.TensorProto.INT32, [], [0])
    made: list[onnx.NodeProto] = []
    there: set[str] = set()
    for node in nodes:
        narrow = node.op_type in _PRODUCTS and node is not first
        made += _product(node, weights, there) if narrow else [node]
    read = {name for node in made for name in node.input}
    kept = [item for name, item in weights.items() if name in read]
    graph = helper.make_graph(made, model.graph.name, model.graph.input, model.graph.output, kept)
    opsets = [*model.opset_import, helper.make_opsetid("ai.graphcore", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=model.ir_version)


def _as_bias(node: onnx.NodeProto, weights: dict[str, onnx.TensorProto]) -> onnx.NodeProto:
    if node.op_type != "BatchNormalization":
        return node
    bias = numpy_helper.to_array(weights[node.input[2]])
    name = f"{node.name}.bias"
    weights[name] = numpy_helper.from_array(bias.reshape(-1, 1, 1), name)
    return helper.make_node("Add", [node.input[0], name], [node.output[0]], name=node.name)


def _product(
    node: onnx.NodeProto, weights: dict[str, onnx.TensorProto], there: set[str]
) -> list[onnx.NodeProto]:
    """The product in eight bits, after conversions of operands that are not ``there`` yet."""
    made: list[onnx.NodeProto] = []
    operands = [f"{name}.eight_bits" for name in node.input[:2]]
    for name, narrow in zip(node.input[:2], operands, strict=True):
        if narrow in there:
            continue
        there.add(narrow)
        if name in weights:
            numbers = numpy_helper.to_array(weights[name]).astype(np.float32)
            weights[narrow] = numpy_helper.from_array(numbers.astype(_NARROW), narrow)
            continue
        names = [name], [narrow]
        attributes = {"domain": "ai.graphcore", "to": "FLOAT8_143"}
        made.append(helper.make_node("Pow2ScaleThenCast", *names, **attributes))
    product = helper.make_node(node.op_type, [*operands, _EXPONENT], node.output, name=node.name)
    product.attribute.extend(node.attribute)
    return [*made, product]
