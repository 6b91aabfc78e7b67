"""Give every output of a subgraph memory of its own, so that handing it over is a plain copy."""

from __future__ import annotations

from typing import ClassVar

from popc.ir import Graph, Op, OpSettings, Tensor
from popc.ops import OPS
from popc.ops.build import build
from popc.transforms.base import Pass
from popc_runtime.ground.frozen import frozen

__all__ = ["SubgraphOutputs"]


@frozen
class SubgraphOutputs(Pass):
    """An output of a nested graph that is no op's own, distinct result goes through a Copy.

    At the end of an iteration the loop copies its outputs over its states, one after another.  An
    output that is itself a state (or a view of one, a constant, a capture, the same tensor twice)
    could be overwritten before it is read.  The same goes for what is copied over a variable, which
    may be another variable.

    Before::

        body = graph (%i, %c, %a, %b) { return %c, %b, %a }

    After::

        body = graph (%i, %c, %a, %b) { %x = Copy(%b) ; %y = Copy(%a) ; return %c, %x, %y }
    """

    name: ClassVar[str] = "subgraph_outputs"
    optional: ClassVar[bool] = False

    def run(self, graph: Graph) -> int:
        """Insert copies; how many."""
        outputs = sum(
            _separate_outputs(nested, first=1 if _ignores_condition(op) else 0)
            for outer in graph.walk()
            for op in outer.holders
            for nested in op.subgraphs.values()
        )
        return outputs + sum(_separate_updates(nested) for nested in graph.walk())


def _ignores_condition(op: Op) -> bool:
    """True if output 0 of the body is the condition of a loop that does not look at it."""
    return op.attributes.get("conditional") == 0


def _separate_outputs(graph: Graph, first: int) -> int:
    changes = 0
    seen: set[Tensor] = set()
    for index, tensor in enumerate(graph.outputs[first:], start=first):
        if tensor in seen or not _owns_memory(tensor):
            graph.outputs[index] = _copy(graph, tensor)
            changes += 1
        seen.add(graph.outputs[index])
    return changes


def _separate_updates(graph: Graph) -> int:
    changes = 0
    seen: set[Tensor] = set()
    for op in graph.ops:
        if op.op_type != "CopyVarUpdate":
            continue
        value = op.operand(1)
        if value in seen or not _owns_memory(_shown_by(value)):
            graph.set_input(op, 1, _copy(graph, value))
            changes += 1
        seen.add(op.operand(1))
    return changes


def _shown_by(tensor: Tensor) -> Tensor:
    """The tensor that ``tensor`` may show: parts of one result may be copied over variables."""
    while (op := tensor.producer) is not None and not op.subgraphs:
        spec = OPS.get(op.op_type)
        if spec is None or spec.view is None:
            break
        tensor = op.operand(0)
    return tensor


def _owns_memory(tensor: Tensor) -> bool:
    op = tensor.producer
    if op is None or op.subgraphs:
        return False
    spec = OPS.get(op.op_type)
    # What a graph hands out is no view: there a copy between chips is one.
    return spec is not None and (spec.view is None or op.op_type == "IpuCopy")


def _copy(graph: Graph, tensor: Tensor) -> Tensor:
    maker = tensor.producer
    stays = maker is not None and maker.op_type != "IpuCopy"
    chip = maker.settings.virtual_graph if maker is not None and stays else None
    settings = OpSettings(origin=tensor.name, virtual_graph=chip)
    return build(graph, "Copy", [tensor], settings=settings).output
