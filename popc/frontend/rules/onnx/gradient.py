"""Gradient: the graph imported so far is differentiated on the spot.

Attributes name the tensors: ``y`` is what is differentiated, ``xs`` with respect to what, and
``zs`` what else y depends on.  The inputs are the values of xs and zs; where those are not the
tensors so named, y is computed once more from the values given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from popc.autodiff.copying import GraphCopy, copy_ops
from popc.frontend.node import ImportRule, Node
from popc.frontend.problems import AlreadyReported
from popc.frontend.values import Unknown
from popc.frontend.walk import GRADIENT
from popc.ir import Graph, Op, Tensor
from popc_runtime.errors import ModelError

__all__ = ["RULES"]


def _gradient(node: Node) -> list[Tensor]:
    """The gradients of the sum of y with respect to each of xs."""
    names = [*node.texts("xs"), *node.texts("zs", ())]
    if len(node.inputs) != len(names):
        raise ModelError(f"{len(node.inputs)} inputs are given for {len(names)} names in xs and zs")
    named = [_tensor(node, name) for name in names]
    y = _tensor(node, node.text("y"))
    values = [_value(node, index, tensor) for index, tensor in enumerate(named)]
    y = _recomputed(node, y, dict(zip(named, values, strict=True)))
    xs = values[: len(node.texts("xs"))]
    for name, x in zip(names, xs, strict=False):
        if x.data is not None:
            raise ModelError(f"{name!r} is a constant, so nothing depends on it")
    from popc.autodiff import differentiate

    found = differentiate(node.importer.graph, {y: _filled(node, 1, y)}, xs, independent=values)
    return [found.get(x) or _filled(node, 0, x) for x in xs]


def _tensor(node: Node, name: str) -> Tensor:
    """The tensor that ``name`` stands for in the graph that holds the node."""
    value = node.importer.lookup(name)
    if isinstance(value, Unknown):
        raise AlreadyReported
    if not isinstance(value, Tensor):
        raise ModelError(f"{name!r} must be a tensor")
    if value in node.importer.captures.values() and value.data is None:
        raise ModelError(f"{name!r} belongs to a graph around the one with the Gradient node")
    return value


def _value(node: Node, index: int, named: Tensor) -> Tensor:
    """The value of ``named`` that the node is given: a tensor of its own if it is another one."""
    value = node.input(index)
    if value is named:
        return value
    if value.type != named.type:
        raise ModelError(f"input {index} is {value.type}, but stands for {named.type}")
    if named.data is not None:
        raise ModelError(f"input {index} stands for a constant, so nothing depends on it")
    return node.emit("Copy", [value])


def _recomputed(node: Node, y: Tensor, values: Mapping[Tensor, Tensor]) -> Tensor:
    """``y`` as it is with the given values in place of the tensors that are the keys."""
    replaced = {tensor: value for tensor, value in values.items() if tensor is not value}
    if not replaced:
        return y
    graph = node.importer.graph
    copies = GraphCopy(graph, dict(replaced))
    ops = _ops_between(graph, replaced, values, y)
    results = {tensor for op in ops for tensor in op.outputs}
    for tensor in (operand for op in ops for operand in op.present_inputs):
        if tensor not in results and tensor not in replaced:
            copies.tensors[tensor] = tensor
    copy_ops(graph, ops, copies)
    return copies.tensors.get(y, y)


def _ops_between(
    graph: Graph, sources: Collection[Tensor], independent: Collection[Tensor], y: Tensor
) -> Sequence[Op]:
    """Ops through which one of ``sources`` influences ``y``, in order."""
    order = graph.topological()
    influenced = set(sources)
    for op in order:
        if any(tensor in influenced for tensor in op.present_inputs):
            influenced.update(tensor for tensor in op.outputs if tensor not in independent)
    found: list[Op] = []
    reached = {y}
    for op in reversed(order):
        if any(t in reached and t in influenced and t not in independent for t in op.outputs):
            found.append(op)
            reached.update(op.present_inputs)
    return found[::-1]


def _filled(node: Node, value: float, like: Tensor) -> Tensor:
    """``value`` everywhere, in a tensor like another."""
    constant = node.constant(value, like.type.dtype)
    shape = like.type.shape
    return node.emit("Expand", [constant], {"shape": shape}) if shape else constant


RULES: Final[dict[tuple[str, str], ImportRule]] = {GRADIENT: _gradient}
