"""Let copies between chips wait for each other."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from popc.ir import Graph, Op
from popc.transforms.base import Pass
from popc.transforms.context import Orders, PassContext, insertion_orders
from popc_runtime.ground.frozen import frozen

if TYPE_CHECKING:
    from popc.ops.sequencer import Sequencer

__all__ = ["MergeCopies"]


@frozen
class MergeCopies(Pass):
    """Copies between chips run one after the other, as long as nobody reads any of them meanwhile.

    Before::

        %a_c1 = IpuCopy(%a)
        %b = Relu(%a)
        %b_c1 = IpuCopy(%b)

    After: ``%a_c1`` waits for ``%b``, so that both copies share a sync.

    Attributes:
        most: How many bytes copies that wait for each other may have; 0: none does.
        orders: Tells in which order ops are going to run.
    """

    name: ClassVar[str] = "merge_copies"
    most: int = 0
    orders: Orders = insertion_orders

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options.merge_ipu_copies_bytes, context.orders)

    def run(self, graph: Graph) -> int:
        """Add orders; how many copies follow another one, and wishes that were in the way."""
        places = [nested for nested in graph.walk() if sum(map(_is_copy, nested.ops)) > 1]
        if not self.most or not places:
            return 0
        orders = self.orders(graph)
        return sum(self._gather(nested, graph, orders[nested]) for nested in places)

    def _gather(self, graph: Graph, top: Graph, order: Sequence[Op]) -> int:
        from popc.ops.sequencer import Sequencer

        sequencer = Sequencer(graph, top)
        waiting: dict[Hashable, list[Op]] = {}
        joined = 0
        for op in order:
            read = {tensor.producer for tensor in op.present_inputs}
            for key in [key for key, group in waiting.items() if not read.isdisjoint(group)]:
                del waiting[key]
            if not _is_copy(op):
                continue
            key = (op.settings.bins, op.settings.part)
            group = waiting.setdefault(key, [])
            if group and not (self._fits(group, op) and _follows(sequencer, group, op)):
                group.clear()
            joined += bool(group)
            group.append(op)
        return joined + sequencer.given_up

    def _fits(self, group: Sequence[Op], op: Op) -> bool:
        return sum(copy.output.type.nbytes for copy in (*group, op)) <= self.most


def _is_copy(op: Op) -> bool:
    return op.op_type == "IpuCopy"


def _follows(sequencer: Sequencer, group: Sequence[Op], op: Op) -> bool:
    """Let ``group`` wait for what ``op`` copies, if that can be; whether it can."""
    source = op.operand(0).producer
    if source is not None and not all(sequencer.may_precede(source, first) for first in group):
        return False
    if not sequencer.require(group[-1], op, tied=True):
        return False
    return source is None or all(sequencer.require(source, first) for first in group)
