"""New values that a model itself gives to variables: running statistics, counters, caches.

A graph is functional: whoever reads a variable sees the value that it had when the run, the branch
or the iteration began.  So an update is a pair of a variable and its new value, which belongs to
the graph that computes it, and goes outwards with it: as one more result of an If, as one more
state of a Loop.  Those that have arrived at the main graph are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from popc.frontend.names import default_domain_name, listed
from popc.frontend.values import Value
from popc.frontend.walk import all_nodes, nested_graphs, node_name, reads
from popc.ir import Tensor, TensorKind
from popc_runtime.errors import ModelError

if TYPE_CHECKING:
    import onnx

    from popc.frontend.functions import FunctionTable
    from popc.frontend.importer import GraphImporter
    from popc.frontend.node import Node

__all__ = [
    "VariableUpdates",
    "is_variable",
    "lost_statistics",
    "update_statistic",
    "writes_variables",
    "written_names",
    "written_outside",
]

_COPY_VAR_UPDATE: Final = ("ai.graphcore", "CopyVarUpdate")

# BatchNormalization: the running statistics among its inputs, and how far in front of these the new
# ones are among its outputs.
_STATISTICS: Final = (3, 4)
_SHIFT: Final = 2


def written_names(
    nodes: Iterable[onnx.NodeProto], functions: FunctionTable, opsets: Mapping[str, int]
) -> set[str]:
    """The names of what nodes give new values, with those of nested graphs and of functions.

    There may be more: names of different graphs are not kept apart.
    """
    found: set[str] = set()
    same: dict[str, str] = {}  # result of an Identity -> its operand
    for node in nodes:
        if node.op_type == "Identity" and len(node.input) == 1:
            same[node.output[0]] = node.input[0]
        found.update(_written_by(node, functions, opsets))
    for name in list(found):
        while (name := same.get(name, "")) and name not in found:
            found.add(name)
    return found


def _written_by(
    node: onnx.NodeProto, functions: FunctionTable, opsets: Mapping[str, int]
) -> Iterator[str]:
    domain = default_domain_name(node.domain)
    body = functions.local(domain, node.op_type, node.overload)
    if body is not None:
        inside = written_names(body.nodes(node), functions, {**opsets, **body.opsets})
        for formal, name in zip(body.inputs, node.input, strict=False):
            if formal in inside:
                yield name
    elif (node.domain, node.op_type) == _COPY_VAR_UPDATE:
        yield from node.input[:1]
    elif node.op_type == "BatchNormalization":
        for source in _STATISTICS:
            if source < len(node.input) and source - _SHIFT < len(node.output):
                yield node.input[source]
    for graph in nested_graphs(node):
        inside = written_names(graph.node, functions, opsets)
        formals = [info.name for info in graph.input]
        if len(formals) == len(node.input):  # a body that is called
            inside.update(
                name for formal, name in zip(formals, node.input, strict=True) if formal in inside
            )
        yield from inside


def writes_variables(importer: GraphImporter, body: onnx.GraphProto) -> bool:
    """True if nodes of ``body`` may give variables new values."""
    context = importer.context
    if not context.written:
        return False
    names = written_names(body.node, context.functions, importer.opsets)
    return not names.isdisjoint(context.written)


def lost_statistics(
    importer: GraphImporter, nodes: Sequence[onnx.NodeProto], wanted: Sequence[str]
) -> list[str]:
    """A note on normalisations whose new running statistics go nowhere: at most a line."""
    read = {*wanted, *(name for node in nodes for name in reads(node))}
    lost = [
        node_name(node)
        for node in all_nodes(nodes)
        if node.op_type == "BatchNormalization" and len(node.output) > 1
        if node.output[1] not in {"", *read}
        if _is_constant(importer.scope.find(node.input[_STATISTICS[0]]))
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


class VariableUpdates:
    """The new values that the nodes of one graph have given to variables.

    A nested graph knows variables as captures.

    Attributes:
        values: The newest value of each variable.
        replaced: Variables whose new value need not follow from the old one.
    """

    def __init__(self) -> None:
        self.values: dict[Tensor, Tensor] = {}
        self.replaced: set[Tensor] = set()

    def latest(self, variable: Tensor) -> Tensor:
        """Its newest value, or the variable itself, which holds the old one."""
        return self.values.get(variable, variable)

    def write(self, variable: Tensor, value: Tensor, *, follows: bool = False) -> None:
        """Let ``value`` be what the variable holds from the next run or iteration on.

        ``follows`` says that it has been computed from the `latest` one.

        Raises:
            ModelError: a value that another node has written would be lost, or the type is wrong.
        """
        if variable in self.replaced or (variable in self.values and not follows):
            raise ModelError(
                f"{variable.name!r} gets more than one new value: a variable is written once in a "
                "run, and once in each iteration of a loop"
            )
        if variable.type != value.type:
            raise ModelError(f"a variable of type {variable.type} cannot hold {value.type}")
        self.values[variable] = value
        if not follows:
            self.replaced.add(variable)


def written_outside(bodies: Iterable[GraphImporter]) -> dict[Tensor, bool]:
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
    if not (node.wants_output(index - _SHIFT) and is_variable(node.importer, statistic)):
        return compute(statistic)
    new = compute(updates.latest(statistic))
    updates.write(statistic, new, follows=True)
    return new


def is_variable(importer: GraphImporter, tensor: Tensor) -> bool:
    """True if ``tensor``, of the graph of ``importer``, is a variable or captures one."""
    if tensor.kind is TensorKind.VARIABLE:
        return True
    outer = next((capture for capture, inner in importer.captures.items() if inner is tensor), None)
    return outer is not None and importer.parent is not None and is_variable(importer.parent, outer)
