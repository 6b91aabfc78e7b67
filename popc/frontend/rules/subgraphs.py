"""Helpers that the control-flow operators have in common."""

from __future__ import annotations

from collections.abc import Sequence

from popc.frontend.node import Node
from popc.frontend.problems import AlreadyReported, DataDependent
from popc.frontend.values import SizedValue, Unknown, Value
from popc.ir import Graph, Tensor
from popc.ops.build import build
from popc_runtime.errors import ModelError

__all__ = ["as_tensors", "flat_scalar", "set_outputs"]


def as_tensors(values: Sequence[Value | None], what: str) -> list[Tensor]:
    """``values`` as tensors; anything else cannot cross a run-time subgraph."""
    if any(isinstance(value, Unknown) for value in values):
        raise AlreadyReported
    if any(isinstance(value, SizedValue) for value in values):
        raise DataDependent(f"{what}: a value that is carried on has a size that data decides")
    tensors = [value for value in values if isinstance(value, Tensor)]
    if len(tensors) != len(values):
        raise DataDependent(f"{what}: sequences and optionals must be resolved at compile time")
    return tensors


def flat_scalar(node: Node, tensor: Tensor, graph: Graph | None = None) -> Tensor:
    """A tensor of one value without dimensions, emitted into ``graph``, or where the node is.

    Exporters write conditions and trip counts with shape [1] as well as [].
    """
    if tensor.type.shape == ():
        return tensor
    if tensor.type.size != 1:
        raise ModelError(f"a condition or trip count must be one value, not {tensor.type}")
    if graph is None:
        return node.emit("Reshape", [tensor], {"shape": ()})
    return build(graph, "Reshape", [tensor], {"shape": ()}).output


def set_outputs(graph: Graph, tensors: Sequence[Tensor]) -> None:
    """Append ``tensors`` to the outputs of a body."""
    for tensor in tensors:
        graph.add_output(tensor.name, tensor)
