"""Names of tensors of an ONNX model."""

from __future__ import annotations

import onnx

__all__ = ["all_names", "read_names"]


def all_names(model: onnx.ModelProto) -> set[str]:
    """The tensors of the outermost graph."""
    graph = model.graph
    names = {name for node in graph.node for name in node.output if name}
    names.update(info.name for info in graph.input)
    names.update(weight.name for weight in graph.initializer)
    return names


def read_names(graph: onnx.GraphProto) -> set[str]:
    """The tensors that nodes of a graph or its subgraphs read."""
    names = {info.name for info in graph.output}
    for node in graph.node:
        names.update(node.input)
        for attribute in node.attribute:
            for nested in (attribute.g, *attribute.graphs):
                names |= read_names(nested)
    return names
