"""Copies of forward ops, to be computed once more in the backward pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from popc.ir import Graph, Op, Tensor
from popc.ops import OPS
from popc_runtime.ground.frozen import mutable

__all__ = ["GraphCopy", "copy_graph", "copy_ops", "is_repeatable", "prune"]


@mutable
class GraphCopy:
    """A copy of a graph, with what its parts are copies of, at all depths.

    Attributes:
        graph: The copy.
        tensors: Tensor of the original graph (not of those nested in it) -> its copy.
        original_tensors: Copy -> original.
        original_ops: Copy -> original, and the graph that holds the original.
    """

    graph: Graph
    tensors: dict[Tensor, Tensor] = field(default_factory=dict["Tensor", "Tensor"])
    original_tensors: dict[Tensor, Tensor] = field(default_factory=dict["Tensor", "Tensor"])
    original_ops: dict[Op, tuple[Op, Graph]] = field(default_factory=dict["Op", "tuple[Op, Graph]"])

    def include(self, nested: GraphCopy) -> None:
        """Take over what is known about the copy of a nested graph."""
        self.original_tensors.update(nested.original_tensors)
        self.original_ops.update(nested.original_ops)


def is_repeatable(op: Op) -> bool:
    """True if ``op`` does and gives the same if it is run once more."""
    spec = OPS.get(op.op_type)
    if spec is not None and (spec.random or spec.side_effect):
        return False
    return all(is_repeatable(inner) for graph in op.subgraphs.values() for inner in graph.ops)


def copy_graph(graph: Graph) -> GraphCopy:
    """A copy of ``graph`` with all that is nested in it, without ops that only have an effect."""
    copied = GraphCopy(Graph(graph.name))
    for tensor in graph.inputs:
        copied.tensors[tensor] = copied.graph.add_input(tensor.name, tensor.type)
    copied.original_tensors.update({copy: tensor for tensor, copy in copied.tensors.items()})
    copy_ops(graph, graph.topological(), copied)
    for name, tensor in zip(graph.output_names, graph.outputs, strict=True):
        copied.graph.add_output(name, _copy_of(tensor, copied))
    return copied


def copy_ops(graph: Graph, ops: Iterable[Op], into: GraphCopy) -> None:
    """Copy ``ops`` of ``graph``, given producers first.

    ``into.tensors`` holds what their operands stand for; constants are copied as need be.
    """
    for op in ops:
        if not op.outputs:
            continue
        subgraphs: dict[str, Graph] = {}
        for name, nested in op.subgraphs.items():
            inner = copy_graph(nested)
            into.include(inner)
            subgraphs[name] = inner.graph
        copy = into.graph.add_op(
            op.op_type,
            [None if tensor is None else _copy_of(tensor, into) for tensor in op.inputs],
            [tensor.type for tensor in op.outputs],
            dict(op.attributes),
            output_names=[tensor.name for tensor in op.outputs],
            settings=replace(op.settings),
            subgraphs=subgraphs,
        )
        into.original_ops[copy] = (op, graph)
        into.tensors.update(zip(op.outputs, copy.outputs, strict=True))
        into.original_tensors.update(zip(copy.outputs, op.outputs, strict=True))


def _copy_of(tensor: Tensor, into: GraphCopy) -> Tensor:
    if tensor not in into.tensors:
        assert tensor.data is not None, f"{tensor!r} has no copy"
        copy = into.graph.add_constant(tensor.name, tensor.type, tensor.data)
        into.tensors[tensor] = copy
        into.original_tensors[copy] = tensor
    return into.tensors[tensor]


def prune(graph: Graph) -> None:
    """Remove the ops whose results nobody reads, whatever they do, and unused constants."""
    outputs = set(graph.outputs)
    for op in reversed(graph.topological()):
        if not any(tensor.uses or tensor in outputs for tensor in op.outputs):
            graph.remove_op(op)
    for tensor in graph.constants:
        if not tensor.uses and tensor not in outputs:
            graph.remove_tensor(tensor)
