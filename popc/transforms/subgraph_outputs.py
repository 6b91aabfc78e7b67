"""Give every output of a subgraph memory of its own, so that handing it over is a plain copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from popc.ir import Graph, OpSettings, Tensor
from popc.ops import OPS
from popc.ops.build import build
from popc.transforms.base import Pass

__all__ = ["SubgraphOutputs"]


@dataclass(frozen=True)
class SubgraphOutputs(Pass):
    """An output of a nested graph that is no op's own, distinct result goes through a Copy.

    At the end of an iteration the loop copies its outputs over its states, one after another.  An
    output that is itself a state (or a view of one, a constant, a capture, the same tensor twice)
    could be overwritten before it is read.

    Before::

        body = graph (%i, %c, %a, %b) { return %c, %b, %a }

    After::

        body = graph (%i, %c, %a, %b) { %x = Copy(%b) ; %y = Copy(%a) ; return %c, %x, %y }
    """

    name: ClassVar[str] = "subgraph_outputs"
    optional: ClassVar[bool] = False

    def run(self, graph: Graph) -> int:
        """Insert copies; how many."""
        changes = 0
        for nested in graph.walk():
            if nested is graph:
                continue
            seen: set[Tensor] = set()
            for index, tensor in enumerate(nested.outputs):
                if tensor in seen or not _owns_memory(tensor):
                    nested.outputs[index] = _copy(nested, tensor)
                    changes += 1
                seen.add(nested.outputs[index])
        return changes


def _owns_memory(tensor: Tensor) -> bool:
    op = tensor.producer
    if op is None or op.subgraphs:
        return False
    spec = OPS.get(op.op_type)
    return spec is not None and spec.view is None


def _copy(graph: Graph, tensor: Tensor) -> Tensor:
    settings = OpSettings(origin=tensor.name)
    return build(graph, "Copy", [tensor], settings=settings).output
