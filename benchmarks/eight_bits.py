"""Convolutions of eight-bit floats, as PopRT makes them of a model in half precision.

Weights are stored in F143, and what they are multiplied with is converted in front.  The first
convolution stays as it is: it reads pixels.  Normalisations after a convolution become its biases,
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


def in_eight_bits(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of ``model`` whose convolutions but the first take operands of eight bits."""
    weights = {item.name: item for item in model.graph.initializer}
    nodes = [_as_bias(node, weights) for node in model.graph.node]
    first = next(index for index, node in enumerate(nodes) if node.op_type == "Conv")
    weights[_EXPONENT] = helper.make_tensor(_EXPONENT, onnx.TensorProto.INT32, [], [0])
    made: list[onnx.NodeProto] = []
    there: set[str] = set()
    for index, node in enumerate(nodes):
        narrow = node.op_type == "Conv" and index > first
        made += _convolution(node, weights, there) if narrow else [node]
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


def _convolution(
    node: onnx.NodeProto, weights: dict[str, onnx.TensorProto], there: set[str]
) -> list[onnx.NodeProto]:
    """The convolution in eight bits, after a conversion of its input that is not ``there`` yet."""
    x, w = (f"{name}.eight_bits" for name in node.input[:2])
    numbers = numpy_helper.to_array(weights[node.input[1]]).astype(np.float32)
    weights[w] = numpy_helper.from_array(numbers.astype(_NARROW), w)
    product = helper.make_node("Conv", [x, w, _EXPONENT], node.output, name=node.name)
    product.attribute.extend(node.attribute)
    if x in there:
        return [product]
    there.add(x)
    names = [node.input[0]], [x]
    cast = helper.make_node("Pow2ScaleThenCast", *names, domain="ai.graphcore", to="FLOAT8_143")
    return [cast, product]
