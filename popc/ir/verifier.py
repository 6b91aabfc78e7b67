"""Structural checks of a graph: every link is kept from both ends, names are unique, no cycles."""

from __future__ import annotations

from popc.ir.graph import Graph, Op, Tensor
from popc.ir.types import TensorKind

__all__ = ["verify"]


def verify(graph: Graph) -> list[str]:
    """Everything wrong with ``graph`` and the graphs nested in it; empty if valid."""
    return [problem for nested in graph.walk() for problem in _graph_problems(nested)]


def _graph_problems(graph: Graph) -> list[str]:
    problems = [
        f"{graph.name}: {problem}" for op in graph.ops for problem in _op_problems(graph, op)
    ]
    for name, tensor in graph.tensors.items():
        problems.extend(f"{graph.name}: {text}" for text in _tensor_problems(graph, name, tensor))
    problems.extend(
        f"{graph.name}: input or output {tensor.name} is not in the graph"
        for tensor in (*graph.inputs, *graph.outputs)
        if graph.tensors.get(tensor.name) is not tensor
    )
    problems.extend(
        f"{graph.name}: the order of {op!r} is required, which is not in the graph"
        for op in dict.fromkeys(op for pair in graph.ordering for op in (pair.first, pair.second))
        if op not in graph
    )
    if len(graph.outputs) != len(graph.output_names):
        problems.append(f"{graph.name}: outputs and their names differ in number")
    try:
        if graph.sort() != graph.topological():
            problems.append(f"{graph.name}: the order that is remembered is not that of the links")
    except ValueError as error:
        problems.append(str(error))
    return problems


def _op_problems(graph: Graph, op: Op) -> list[str]:
    problems: list[str] = []
    reads: dict[Tensor, int] = {}
    for tensor in op.present_inputs:
        reads[tensor] = reads.get(tensor, 0) + 1
    for tensor, count in reads.items():
        if graph.tensors.get(tensor.name) is not tensor:
            problems.append(f"{op!r} reads {tensor.name}, which is not in the graph")
        if tensor.uses.get(op) != count:
            problems.append(f"{tensor.name} does not know that {op!r} reads it {count} times")
    problems.extend(
        f"{op!r} does not own its output {tensor.name}"
        for tensor in op.outputs
        if tensor.producer is not op or graph.tensors.get(tensor.name) is not tensor
    )
    return problems


def _tensor_problems(graph: Graph, name: str, tensor: Tensor) -> list[str]:
    problems: list[str] = []
    if tensor.name != name:
        problems.append(f"{tensor.name} is registered as {name}")
    if (tensor.kind is TensorKind.ACTIVATION) != (tensor.producer is not None):
        problems.append(f"{name} is {tensor.kind} but its producer is {tensor.producer!r}")
    if tensor.producer is not None and tensor.producer not in graph:
        problems.append(f"{name} is produced by an op of another graph")
    if (tensor.data is not None) != (tensor.kind is TensorKind.CONSTANT):
        problems.append(f"{name} is {tensor.kind} but data does not agree")
    if (tensor.role is not None) != (tensor.kind is TensorKind.VARIABLE):
        problems.append(f"{name} is {tensor.kind} but its role is {tensor.role}")
    problems.extend(
        f"{name} lists {op!r} as user, which is not in the graph"
        for op in tensor.uses
        if op not in graph
    )
    return problems
