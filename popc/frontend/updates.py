"""New values that a model itself gives to variables: running statistics, counters, caches.

A graph is functional: whoever reads a variable sees the value that it had when the run, the branch
or the iteration began.  So an update is a pair of a variable and its new value, which belongs to
the graph that computes it, and goes outwards with it: as one more result of an If, as one more
state of a Loop.  Those that have arrived at the main graph are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from popc.frontend.names import default_domain_name
from popc.frontend.walk import nested_graphs
from popc.ir import Tensor
from popc_runtime.errors import ModelError

if TYPE_CHECKING:
    from popc.frontend import messages as onnx
    from popc.frontend.functions import FunctionTable

__all__ = ["SHIFT", "STATISTICS", "VariableUpdates", "written_names"]

_COPY_VAR_UPDATE: Final = ("ai.graphcore", "CopyVarUpdate")

# BatchNormalization: the running statistics among its inputs, and how far in front of these the new
# ones are among its outputs.
STATISTICS: Final = (3, 4)
SHIFT: Final = 2


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
        for source in STATISTICS:
            if source < len(node.input) and source - SHIFT < len(node.output):
                yield node.input[source]
    for graph in nested_graphs(node):
        inside = written_names(graph.node, functions, opsets)
        formals = [info.name for info in graph.input]
        if len(formals) == len(node.input):  # a body that is called
            inside.update(
                name for formal, name in zip(formals, node.input, strict=True) if formal in inside
            )
        yield from inside


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
