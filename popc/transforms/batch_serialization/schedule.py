"""The order in which the parts of a batch run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Final, Self

from popc.ir import Graph, Op
from popc.ops.constraints import Node
from popc.options import OVERLAPPING, PartsSchedule
from popc.transforms.base import Pass
from popc.transforms.context import Orders, PassContext, insertion_orders
from popc_runtime.ground.frozen import frozen

if TYPE_CHECKING:
    from popc.ops.sequencer import Sequencer
    from popc.transforms.batch_serialization.levels import Position
    from popc.transforms.batch_serialization.overlap import Overlap

__all__ = ["PARTITION", "BatchSchedule"]

PARTITION: Final = "parts of the batch"


@frozen
class BatchSchedule(Pass):
    """Part after part; then the order is settled, so that nothing disturbs it.

    Before, two ops of each of two parts may run in any order.  After::

        %a1 = Relu(%x1)                                             batch_phase 0
        %b1 = MatMul(%a1, @w)                                       batch_phase 0
        %a2 = Relu(%x2)                                             batch_phase 1
        %b2 = MatMul(%a2, @w)                                       batch_phase 1

    Bins keep parts apart.  All parts follow the order that the scheduler finds for the first, but
    with ``kind`` SCHEDULER each has its own.  With ``kind`` OVERLAP_ON_IO and
    OVERLAP_ON_COMPUTE transfers stand in no bin: see `Overlap`.

    Attributes:
        kind: As the option ``batch_serialization_batch_schedule``.
        orders: Tells in which order ops are going to run.
    """

    name: ClassVar[str] = "batch_schedule"
    optional: ClassVar[bool] = False
    kind: PartsSchedule = PartsSchedule.ISOMORPHIC
    orders: Orders = insertion_orders

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options.batch_serialization_batch_schedule, context.orders)

    def run(self, graph: Graph) -> int:
        """Order the graphs with parts; the number of ops that belong to parts."""
        graphs = [inner for inner in graph.walk() if _has_parts(inner)]
        if not graphs:
            return 0
        from popc.ops.sequencer import Sequencer

        sequencers = {inner: Sequencer(inner, graph) for inner in graphs}
        from popc.transforms.batch_serialization.levels import find_positions

        positions = {inner: find_positions(sequencers[inner].before()) for inner in graphs}
        for nested in graphs:
            self._sort_into_bins(sequencers[nested], positions[nested])
        if self.kind is not PartsSchedule.SCHEDULER:
            orders = self.orders(graph)
            for nested in graphs:
                self._let_parts_follow(sequencers[nested], orders[nested], positions[nested])
        orders = self.orders(graph)
        for nested in graphs:
            sequencers[nested].fix(orders[nested])
        return sum(map(len, positions.values()))

    def problems(self, graph: Graph) -> list[str]:
        """Parts that do not follow each other, in the order that results."""
        graphs = [nested for nested in graph.walk() if _has_parts(nested)]
        orders = self.orders(graph) if graphs else {}
        from popc.transforms.batch_serialization.check import find_disorder

        return [text for nested in graphs for text in find_disorder(orders[nested], PARTITION)]

    def _overlap(self, positions: Mapping[Op, Position]) -> Overlap | None:
        from popc.transforms.batch_serialization.overlap import Overlap

        return Overlap(self.kind, positions) if self.kind in OVERLAPPING else None

    def _sort_into_bins(self, sequencer: Sequencer, positions: Mapping[Op, Position]) -> None:
        overlap = self._overlap(positions)
        numbers = {place: number for number, place in enumerate(sorted(set(positions.values())))}
        bins = {
            op: numbers[position]
            for op, position in positions.items()
            if overlap is None or not overlap.is_transfer(op)
        }
        sequencer.put_into_bins(PARTITION, bins)

    def _let_parts_follow(
        self, sequencer: Sequencer, order: Sequence[Op], positions: Mapping[Op, Position]
    ) -> None:
        overlap = self._overlap(positions)
        chains = _chains(order, sequencer.before(), positions, overlap)
        for chain in chains.values():
            for first, second in pairwise(chain):
                sequencer.require(first, second)
        if overlap is not None:
            overlap.require(sequencer, chains)


def _has_parts(graph: Graph) -> bool:
    return any(op.settings.batch_phase is not None for op in graph.ops)


def _chains(
    order: Sequence[Op],
    before: Mapping[Node, Sequence[Node]],
    positions: Mapping[Op, Position],
    overlap: Overlap | None,
) -> dict[Position, list[Op]]:
    """The ops of each part in each pass over the parts, in the order of the part before.

    What runs at load time is not in ``order``.
    """
    from popc.transforms.batch_serialization.levels import Position

    groups: dict[Position, list[Op]] = defaultdict(list)
    for op in order:
        if op in positions:
            groups[positions[op]].append(op)
    from popc.transforms.batch_serialization.isomorphism import Likeness, follow

    likeness = Likeness(order)
    chains: dict[Position, list[Op]] = {}
    for position in sorted(groups):
        ops = groups[position]
        keys = likeness.keys(ops)
        model = chains.get(Position(position.level, position.phase - 1), ops)
        numbers = {key: number for number, key in enumerate(likeness.keys(model).values())}
        places = {op: numbers.get(key) for op, key in keys.items()}
        ranks = {op: 0 if overlap is None else overlap.rank(op) for op in ops}
        chains[position] = follow(ops, before, places, ranks)
    return chains
