"""Ways through an ONNX model: subgraphs, what nodes read, which nodes are needed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from popc.frontend import messages as onnx
from popc.frontend.names import abbreviated

__all__ = [
    "GRADIENT",
    "all_nodes",
    "attributed_nodes",
    "defined_names",
    "differentiated_names",
    "direct_reads",
    "find_attribute",
    "free_names",
    "graphs_inside",
    "needed_nodes",
    "nested_graphs",
    "node_name",
    "number_of",
    "reads",
]

GRADIENT: Final = ("ai.onnx.preview.training", "Gradient")

_EFFECTS: Final = frozenset(
    ("ai.graphcore", op_type) for op_type in ("Abort", "CopyVarUpdate", "HostCall", "PrintTensor")
)


# Where torch.onnx keeps the modules that a node belongs to, outer first, and the node's own name.
_SCOPES: Final = "pkg.torch.onnx.name_scopes"
_QUOTED: Final = re.compile(r"'([^']*)'")

# Of a function: its domain, its name, and which of several forms it is.
_Name: TypeAlias = tuple[str, str, str]


def node_name(proto: onnx.NodeProto) -> str:
    """The name of a node in messages: its name, or its op type and first named output."""
    if proto.name:
        return abbreviated(_with_module(proto) if proto.metadata_props else proto.name)
    return abbreviated(f"{proto.op_type}({next(filter(None, proto.output), '')})")


def _with_module(proto: onnx.NodeProto) -> str:
    """The name behind that of the module of PyTorch, for exporters that keep them apart.

    encoder.layer.0.query/node_linear
    """
    written = next((item.value for item in proto.metadata_props if item.key == _SCOPES), "")
    modules = [name for name in _QUOTED.findall(written)[:-1] if name and name[0] != "_"]
    return f"{modules[-1]}/{proto.name}" if modules else proto.name


def find_attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    """A node's attribute; ``None`` if it has none of that name."""
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def number_of(node: onnx.NodeProto, name: str) -> int | None:
    """The whole number that an attribute is; ``None`` if the node has none of that name."""
    return next((attribute.i for attribute in node.attribute if attribute.name == name), None)


def nested_graphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The subgraphs in a node's attributes."""
    graphs: list[onnx.GraphProto] = []
    if not node.attribute:  # as it is for the most part
        return graphs
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            graphs.append(attribute.g)
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            graphs.extend(attribute.graphs)
    return graphs


def graphs_inside(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """Every graph nested in ``nodes``, outer first."""
    for node in nodes:
        for graph in nested_graphs(node):
            yield graph
            yield from graphs_inside(graph.node)


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """``nodes`` and those of every graph nested in them, outer first."""
    for node in nodes:
        yield node
        for graph in nested_graphs(node):
            yield from all_nodes(graph.node)


def attributed_nodes(nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Nodes, nested ones too, that have attributes, or stand in one that has."""
    return [inner for node in nodes if node.attribute for inner in all_nodes((node,))]


def defined_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Every definition in a graph: inputs, weights that are not inputs too, outputs of nodes."""
    inputs = [info.name for info in graph.input]
    yield from inputs
    listed = set(inputs)
    weights = [tensor.name for tensor in graph.initializer]
    weights += [tensor.values.name for tensor in graph.sparse_initializer]
    yield from (name for name in weights if name not in listed)
    yield from [name for node in graph.node for name in node.output if name]


def reads(node: onnx.NodeProto) -> list[str]:
    """The names that a node reads, those that its subgraphs take from outside included."""
    found = direct_reads(node)
    if node.attribute:
        for graph in nested_graphs(node):
            found.extend(free_names(graph))
    return found


def direct_reads(node: onnx.NodeProto) -> list[str]:
    """The names that a node reads itself, those that only nodes of its subgraphs read left out."""
    found = [name for name in node.input if name]
    if node.attribute:
        found.extend(_named_by(node, "xs", "zs", "y"))
        for graph in nested_graphs(node):
            found.extend(_taken_from_outside(node, graph))
    return found


def _taken_from_outside(node: onnx.NodeProto, graph: onnx.GraphProto) -> Iterator[str]:
    """Inputs of a branch or body, as PopART lists them, that the node has no operands for."""
    first = {"If": 0, "Loop": len(node.input)}.get(node.op_type)
    if first is not None:
        yield from (info.name for info in graph.input[first:])


def differentiated_names(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """The names that Gradient nodes differentiate with respect to."""
    return {name for node in attributed_nodes(nodes) for name in _named_by(node, "xs")}


def _named_by(node: onnx.NodeProto, *attributes: str) -> Iterator[str]:
    """The tensors that attributes of a Gradient node name."""
    if (node.domain, node.op_type) == GRADIENT:
        for attribute in node.attribute:
            if attribute.name in attributes:
                texts = [attribute.s] if attribute.s else attribute.strings
                yield from (text.decode() for text in texts)


def free_names(graph: onnx.GraphProto) -> Iterator[str]:
    """The names that a subgraph reads but does not define."""
    defined = set(defined_names(graph))
    for node in graph.node:
        yield from (name for name in reads(node) if name not in defined)
    yield from (info.name for info in graph.output if info.name not in defined)


def _has_effect(node: onnx.NodeProto, functions: Mapping[_Name, onnx.FunctionProto]) -> bool:
    """True if a node, or one inside, is there for what it does, not for its results."""
    for inner in all_nodes([node]) if node.attribute else [node]:
        if (inner.domain, inner.op_type) in _EFFECTS:
            return True
        body = functions.get((inner.domain, inner.op_type, inner.overload))
        if body is not None and any(_has_effect(inner, functions) for inner in body.node):
            return True
    return False


def needed_nodes(
    nodes: Sequence[onnx.NodeProto],
    wanted: Iterable[str],
    functions: Iterable[onnx.FunctionProto] = (),
) -> tuple[list[onnx.NodeProto], set[str]]:
    """The nodes (sorted topologically) that ``wanted`` depends on, and all names they need.

    Nodes that print, or end a run, are needed too, and those that write variables.
    """
    names = set(wanted)
    bodies = {
        (function.domain, function.name, function.overload): function for function in functions
    }
    kept: list[onnx.NodeProto] = []
    for node in reversed(nodes):
        if not names.isdisjoint(node.output) or _has_effect(node, bodies):
            kept.append(node)
            names.update(reads(node) if node.attribute else filter(None, node.input))
    return kept[::-1], names
