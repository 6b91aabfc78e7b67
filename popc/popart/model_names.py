"""Names of tensors of an ONNX model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import onnx

from popc.frontend import nested_graphs, number_of

__all__ = [
    "EFFECTS",
    "all_names",
    "known_names",
    "needed_names",
    "nodes_of",
    "place_of",
    "read_names",
    "stage_of",
]

# Nodes that do more than compute: whatever they read is needed.
EFFECTS: Final = ("Abort", "CopyVarUpdate", "PrintTensor")


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of its subgraphs, each before those that it holds."""
    for node in graph.node:
        yield node
        for nested in nested_graphs(node):
            yield from nodes_of(nested)


def place_of(node: onnx.NodeProto) -> int | None:
    """The number of the virtual graph that a node says it is on."""
    return number_of(node, "__ipu_number")


def stage_of(node: onnx.NodeProto) -> int | None:
    """The stage of a pipeline that a node says it is in."""
    return number_of(node, "__pipeline_stage")


def known_names(graph: onnx.GraphProto) -> set[str]:
    """The tensors of the outermost graph that follow from initializers and constants alone."""
    known = {weight.name for weight in graph.initializer}
    for node in graph.node:
        if known.issuperset(name for name in node.input if name):
            known.update(node.output)
    return known


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
        for nested in nested_graphs(node):
            names |= read_names(nested)
    return names


def needed_names(graph: onnx.GraphProto, roots: Iterable[str]) -> set[str]:
    """The tensors that ``roots`` follow from, or that nodes with an effect read."""
    needed = set(roots)
    for node in reversed(graph.node):
        if node.op_type in EFFECTS or not needed.isdisjoint(node.output):
            needed.update(node.input)
            for nested in nested_graphs(node):
                needed |= read_names(nested)
    return needed
