"""In which order the chips of a pipeline update their weights."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Final, Self

from popc.ir import Graph, Op, StepPart
from popc.ops.main_loops import is_pipeline, step_of_pipeline
from popc.options import OuterFragmentSchedule
from popc.transforms.base import Pass, PassOutcome
from popc.transforms.context import PassContext
from popc_runtime.ground.frozen import frozen

if TYPE_CHECKING:
    from popc.ops.sequencer import Sequencer

__all__ = ["OuterFragment"]

_BINS: Final = "outer fragment"
_REMOTE: Final = frozenset({"RemoteLoad", "RemoteStore"})


@frozen
class OuterFragment(Pass):
    """Order what follows the flush of a pipeline: the updates of the weights.

    With ``schedule`` SERIAL, one chip after the other; what needs something of a later chip waits
    for it.  With OVERLAP_CYCLE_OPTIMIZED the first transfers of all chips from streaming memory
    stand side by side, then the second ones, the smallest first; with OVERLAP_MEMORY_OPTIMIZED
    only those that load the same shapes.  With SCHEDULER, nothing is required.

    Attributes:
        enabled: Whether to do anything.
        schedule: How.
        excluded: Chips that are left alone.
    """

    name: ClassVar[str] = "outer_fragment"
    optional: ClassVar[bool] = False
    enabled: bool = False
    schedule: OuterFragmentSchedule = OuterFragmentSchedule.SERIAL
    excluded: tuple[int, ...] = ()

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        options = context.options
        return cls(
            options.enable_pipelining,
            options.accumulate_outer_fragment_schedule,
            options.accumulate_outer_fragment_excluded_virtual_graphs,
        )

    def run(self, graph: Graph) -> PassOutcome:
        """Order the updates; how many ops that concerns."""
        orders = self.enabled and self.schedule is not OuterFragmentSchedule.SCHEDULER
        outer = _holder(graph) if orders else None
        if outer is None:
            return PassOutcome(0)
        ops = [op for op in _updates(outer) if self._is_meant(op)]
        from popc.ops.sequencer import Sequencer

        sequencer = Sequencer(outer, graph)
        if self.schedule is OuterFragmentSchedule.SERIAL:
            changes = _one_by_one(sequencer, ops)
        else:
            alike = self.schedule is OuterFragmentSchedule.OVERLAP_MEMORY_OPTIMIZED
            changes = _side_by_side(sequencer, ops, alike=alike)
        return PassOutcome(changes + sequencer.given_up)

    def _is_meant(self, op: Op) -> bool:
        chip = op.settings.virtual_graph
        return chip is not None and chip not in self.excluded


def _holder(graph: Graph) -> Graph | None:
    """The graph that holds the pipeline."""
    for nested in graph.walk():
        if any(map(is_pipeline, nested.ops)):
            return nested
    return None


def _updates(graph: Graph) -> list[Op]:
    """The ops of updates that need what the pipeline has computed, and all their transfers."""
    behind: set[Op] = set()
    found: list[Op] = []
    for op in graph.topological():
        inside = step_of_pipeline(op) is not None
        follows = any(tensor.producer in behind for tensor in op.present_inputs)
        if inside or follows:
            behind.add(op)
        is_update = follows and op.settings.part is StepPart.UPDATE
        if not inside and (is_update or op.op_type in _REMOTE):
            found.append(op)
    return found


def _one_by_one(sequencer: Sequencer, ops: Sequence[Op]) -> int:
    """Bins by chip; what waits for something of a later chip is in the bin of that."""
    numbers = {op: op.settings.virtual_graph or 0 for op in ops if op.op_type != "RemoteLoad"}
    return len(sequencer.put_into_bins(_BINS, numbers))


# -- transfers side by side ------------------------------------------------------------------------


def _side_by_side(sequencer: Sequencer, ops: Sequence[Op], *, alike: bool) -> int:
    """Tie the loads of clusters of different chips together, as far as can be; how many loads."""
    queues: dict[int, list[list[Op]]] = defaultdict(list)
    for loads in _clusters(ops):
        queues[loads[0].settings.virtual_graph or 0].append(loads)
    for queue in queues.values():
        queue.sort(key=_loaded_bytes)
    tied = 0
    while any(queues.values()):
        heads = [queue[0] for _, queue in sorted(queues.items()) if queue]
        smallest = min(heads, key=_loaded_bytes)
        group = [head for head in heads if not alike or _shapes(head) == _shapes(smallest)]
        for queue in queues.values():
            if queue and queue[0] in group:
                queue.pop(0)
        row = [load for loads in group for load in loads]
        for first, second in pairwise(row if len(group) > 1 else ()):
            sequencer.require(first, second, tied=True)
        tied += len(row) if len(group) > 1 else 0
    return tied


def _clusters(ops: Sequence[Op]) -> Iterator[list[Op]]:
    """The loads of ops that work on the same tensors; numbers that all share do not count."""
    leader: dict[Op, Op] = {op: op for op in ops}

    def find(op: Op) -> Op:
        while leader[op] is not op:
            op = leader[op]
        return op

    for op in ops:
        for tensor in op.present_inputs:
            if tensor.producer in leader and tensor.type.size > 1:
                leader[find(op)] = find(tensor.producer)
    clusters: dict[Op, list[Op]] = defaultdict(list)
    for op in ops:
        if op.op_type == "RemoteLoad":
            clusters[find(op)].append(op)
    yield from clusters.values()


def _loaded_bytes(loads: Sequence[Op]) -> int:
    return sum(op.output.type.nbytes for op in loads)


def _shapes(loads: Sequence[Op]) -> set[tuple[int, ...]]:
    return {op.output.type.shape for op in loads}
