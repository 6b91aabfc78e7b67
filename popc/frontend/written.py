"""Variables that a model itself writes, as the graphs around a node know them: see `updates`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from popc.frontend import messages as onnx
from popc.frontend.names import listed
from popc.frontend.node import Node
from popc.frontend.open_graph import OpenGraph
from popc.frontend.updates import SHIFT, STATISTICS, written_names
from popc.frontend.values import Value
from popc.frontend.walk import all_nodes, node_name, reads
from popc.ir import Tensor, TensorKind

__all__ = [
    "is_variable",
    "lost_statistics",
    "update_statistic",
    "writes_variables",
    "written_outside",
]


def writes_variables(importer: OpenGraph, body: onnx.GraphProto) -> bool:
    """True if nodes of ``body`` may give variables new values."""
    context = importer.context
    if not context.written:
        return False
    names = written_names(body.node, context.functions, importer.opsets)
    return not names.isdisjoint(context.written)


def lost_statistics(
    importer: OpenGraph, nodes: Sequence[onnx.NodeProto], wanted: Sequence[str]
) -> list[str]:
    """A note on normalisations whose new running statistics go nowhere: at most a line."""
    found = [
        node
        for node in all_nodes(nodes)
        if node.op_type == "BatchNormalization" and len(node.output) > 1
    ]
    if not found:
        return []
    read = {"", *wanted, *(name for node in nodes for name in reads(node))}
    lost = [
        node_name(node)
        for node in found
        if node.output[1] not in read
        if _is_constant(importer.scope.find(node.input[STATISTICS[0]]))
    ]
    if not lost:
        return []
    note = (
        f"{listed(lost)} in training mode: running statistics stay as they are, as weights are "
        "constants; constant_weights=false keeps them from run to run, and `popc export "
        "--inference` makes a model that normalises by them"
    )
    return [note]


def _is_constant(value: Value | None) -> bool:
    return isinstance(value, Tensor) and value.is_constant


def written_outside(bodies: Iterable[OpenGraph]) -> dict[Tensor, bool]:
    """The variables that bodies of an op write, as the graph around them knows these.

    With each, whether its new values follow from the latest ones.
    """
    found: dict[Tensor, bool] = {}
    for body in bodies:
        for outer, inner in body.captures.items():
            if inner in body.updates.values:
                found[outer] = found.get(outer, True) and inner not in body.updates.replaced
    return found


def update_statistic(node: Node, index: int, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """The new value of operand ``index`` of a BatchNormalization, kept if it can be.

    Nodes that share their statistics go on from each other's.
    """
    statistic, updates = node.input(index), node.importer.updates
    if not (node.wants_output(index - SHIFT) and is_variable(node.importer, statistic)):
        return compute(statistic)
    new = compute(updates.latest(statistic))
    updates.write(statistic, new, follows=True)
    return new


def is_variable(importer: OpenGraph, tensor: Tensor) -> bool:
    """True if ``tensor``, of the graph of ``importer``, is a variable or captures one."""
    if tensor.kind is TensorKind.VARIABLE:
        return True
    outer = next((capture for capture, inner in importer.captures.items() if inner is tensor), None)
    return outer is not None and importer.parent is not None and is_variable(importer.parent, outer)
