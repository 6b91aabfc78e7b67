"""Remove what nobody reads."""

from __future__ import annotations

from typing import ClassVar

from popc.ir import Graph, Op
from popc.ops import OPS
from popc.transforms.base import Pass
from popc_runtime.ground.frozen import frozen

__all__ = ["DeadCode"]


@frozen
class DeadCode(Pass):
    """Ops without side effects whose outputs nobody reads disappear, and unused constants.

    Before::

        %a = Relu(%x)
        %b = Exp(%x)
        HostStore(%a)

    After::

        %a = Relu(%x)
        HostStore(%a)
    """

    name: ClassVar[str] = "dead_code"

    def run(self, graph: Graph) -> int:
        """Remove users before producers, outer graphs before inner ones; the number of removals."""
        changes = 0
        for nested in graph.walk():
            outputs = set(nested.outputs)
            for op in reversed(nested.topological()):
                if op.outputs and op.outputs[0].uses:
                    continue  # as for the most part
                for tensor in op.outputs:
                    if tensor.uses or tensor in outputs:
                        break
                else:
                    if not _has_side_effect(op):
                        nested.remove_op(op)
                        changes += 1
            for tensor in nested.constants:
                if not tensor.uses and tensor not in outputs:
                    nested.remove_tensor(tensor)
                    changes += 1
        return changes


def _has_side_effect(op: Op) -> bool:
    if op.subgraphs:
        return any(_has_side_effect(inner) for g in op.subgraphs.values() for inner in g.ops)
    return OPS[op.op_type].side_effect
