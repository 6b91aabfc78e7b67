"""Add the gradients of parts up as soon as each is known."""

from __future__ import annotations

from typing import ClassVar

from popc.ir import Graph, Op, Tensor
from popc.ops.build import build
from popc.transforms.base import RewritePass
from popc_runtime.ground.frozen import frozen

__all__ = ["SumParts"]


@frozen
class SumParts(RewritePass):
    """A sum of what several parts of a batch give becomes a chain of additions, part after part.

    So no more than two of the addends live at a time.

    Before::

        %y = Sum(%a1, %a2, %a3)                a1 of batch_phase 0, a2 of 1, a3 of 2

    After::

        %s = Add(%a1, %a2)                     batch_phase 1
        %y = Add(%s, %a3)
    """

    name: ClassVar[str] = "sum_parts"
    optional: ClassVar[bool] = False
    level: ClassVar[str] = ""
    rewrites: ClassVar[frozenset[str]] = frozenset({"Sum"})

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Replace ``op`` if it is such a sum."""
        if op.op_type != "Sum" or op.settings.batch_phase is not None or len(op.inputs) < 2:
            return False
        addends = op.present_inputs
        phases = [_phase(tensor) for tensor in addends]
        types = {tensor.type for tensor in addends}
        if len(set(phases)) < 2 or len(types) > 1:
            return False
        from popc.transforms.batch_serialization.emit import part_settings  # few programs need it

        total, *rest = sorted(addends, key=_phase)
        for addend in rest:
            settings = part_settings(op, None if addend is rest[-1] else _phase(addend))
            total = build(graph, "Add", [total, addend], settings=settings).output
        name = op.output.name
        graph.replace_op(op, [total])
        graph.rename(total, name)
        return True


def _phase(tensor: Tensor) -> int:
    """The part that an addend is known with; -1 if it belongs to none."""
    producer = tensor.producer
    phase = None if producer is None else producer.settings.batch_phase
    return -1 if phase is None else phase
