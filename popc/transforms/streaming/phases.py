"""Execution phases: one after the other, and when in them transfers take place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from popc.ir import Graph, Op, OpSettings, Recompute, StepPart
from popc.ops.streaming import LOAD, STORE
from popc.options import IoSchedule, Options, PhaseSchedule
from popc.placement import is_main_loop, main_graphs

__all__ = ["BINS", "PhaseRules", "forget_outer_phases", "phased_graphs", "settle_phases"]

# The partition that keeps phases apart.
BINS: Final = "execution_phase"

_COPIES: Final = ("IpuCopy", "IoTileCopy")
_COLLECTIVES: Final = ("ReplicatedAllReduce", "ReplicatedReduceScatter")

# The later in a phase, the lower.  Priorities of the user lie in between.
_LIMIT: Final = 9000.0
_PRIORITIES: Final[Mapping[PhaseSchedule, Mapping[str, float]]] = {
    PhaseSchedule.INTERLEAVING: {
        "load": -9002.0,
        "copy": -9003.0,
        "late load": -9004.0,
        "collective": -9004.0,
        "update": -9004.0,
        "store": -9004.0,
    },
    PhaseSchedule.BATCH: {
        "load": -9002.0,
        "copy": -9003.0,
        "late load": -9004.0,
        "collective": -9004.0,
        "update": -9005.0,
        "store": -9006.0,
    },
    PhaseSchedule.BATCH_CLUSTERED_IO: {
        "load": 9001.0,
        "copy": -9001.0,
        "late load": 9001.0,
        "collective": -9002.0,
        "update": -9003.0,
        "store": -9004.0,
    },
}


def phased_graphs(graph: Graph) -> list[Graph]:
    """The graphs whose ops are in phases: of a step, or of a micro-batch."""
    return [nested for nested in main_graphs(graph) if _phased(nested)]


def forget_outer_phases(graph: Graph) -> int:
    """Take the ops around a main loop out of their phases; how many."""
    outer = [
        op
        for nested in main_graphs(graph)
        if any(map(is_main_loop, nested.ops))
        for op in _phased(nested)
    ]
    for op in outer:
        op.settings = replace(op.settings, execution_phase=None)
    return len(outer)


def _phased(graph: Graph) -> list[Op]:
    return [op for op in graph.ops if op.settings.execution_phase is not None]


def settle_phases(graph: Graph, top: Graph) -> None:
    """Give every op of a graph with phases one that is not before that of what it waits for."""
    order = graph.topological()
    for op in order:
        producers = (t.producer for t in op.present_inputs)
        _default(op, [producer for producer in producers if producer is not None], latest=True)
    for op in reversed(order):
        users = [user for tensor in op.outputs for user in tensor.uses]
        repeated = op.settings.recompute is Recompute.RECOMPUTED
        _default(op, users, latest=False, again=repeated)
    for op in order:
        if op.settings.execution_phase is None:
            _set_phase(op, 0)
    phases = {op: _phase(op) for op in order}
    from popc.ops.sequencer import Sequencer

    for op, phase in Sequencer(graph, top).raised(phases).items():
        _set_phase(op, phase)


def _default(op: Op, others: list[Op], *, latest: bool, again: bool = False) -> None:
    phases = [other_op.settings.execution_phase for other_op in others]
    known = [phase for phase in phases if phase is not None]
    if known and (op.settings.execution_phase is None or again):
        _set_phase(op, max(known) if latest else min(known))


def _phase(op: Op) -> int:
    return op.settings.execution_phase or 0


def _set_phase(op: Op, phase: int) -> None:
    op.settings = replace(op.settings, execution_phase=phase)


class PhaseRules:
    """In which phase, and how early in it, a transfer takes place."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._urgent: set[Op] = set()

    @property
    def gap(self) -> int:
        """The distance of phases between which a tensor stays on the chip."""
        return self._options.execution_phase_stages

    def preloads(self, kind: str, settings: OpSettings) -> bool:
        """True if tensors of a kind are fetched in the phase before that of their reader."""
        early = self._options.io_schedule(kind) is IoSchedule.PRELOAD
        return settings.execution_phase is not None and early

    def for_load(self, kind: str, settings: OpSettings) -> OpSettings:
        """The settings of a transfer to the chip for an op with ``settings``."""
        phase = settings.execution_phase
        if phase is None or not self.preloads(kind, settings):
            return settings
        return replace(settings, execution_phase=max(phase - 1, 0))

    def note_load(self, op: Op, kind: str) -> None:
        """Remember a load that takes place when it is needed, like any op that computes."""
        on_demand = self._options.io_schedule(kind) is IoSchedule.ON_DEMAND
        if on_demand and kind != "optimizer_state":
            self._urgent.add(op)

    def finish(self, graph: Graph, top: Graph) -> int:
        """Keep the phases of ``graph`` apart, and let transfers take place when they should."""
        own = [op for op in graph.ops if op.settings.execution_phase is not None]
        phases = {op: _phase(op) for op in own}
        from popc.ops.sequencer import Sequencer

        for op, phase in Sequencer(graph, top).put_into_bins(BINS, phases).items():
            _set_phase(op, phase)
        scale = self._scale(own)
        for op in own:
            priority = self._priority(op)
            if priority is None:
                priority = op.settings.schedule_priority * scale
            op.settings = replace(op.settings, schedule_priority=priority)
        return len(own)

    def _scale(self, ops: list[Op]) -> float:
        largest = max((abs(op.settings.schedule_priority) for op in ops), default=0.0)
        return min(1.0, _LIMIT / largest) if largest else 1.0

    def _priority(self, op: Op) -> float | None:
        kind = self._kind(op)
        schedule = self._options.execution_phase_schedule
        return None if kind is None else _PRIORITIES[schedule][kind]

    def _kind(self, op: Op) -> str | None:
        """The role of ``op`` in a phase; ``None``: it computes, in the middle."""
        if op.op_type in (LOAD, "ReplicatedAllGather"):
            if op in self._urgent:
                return None
            return "late load" if self._is_late(op) else "load"
        if op.op_type == STORE:
            return "store"
        if op.op_type in _COPIES:
            return "copy"
        if op.op_type in _COLLECTIVES:
            return "collective"
        return "update" if op.settings.part is StepPart.UPDATE else None

    def _is_late(self, op: Op) -> bool:
        """True if what is fetched is read in the same phase."""
        users = [user for tensor in op.outputs for user in tensor.uses]
        return any(_phase(user) == _phase(op) for user in users)
