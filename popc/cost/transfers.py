"""The transfers that share syncs, and the parts of them that hide behind computing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from popc.cost.phases import Cycles, Phase
from popc.ir import Graph, Op
from popc.schedule import Schedule
from popc.target import Target

__all__ = ["find_hidden", "merged_transfers", "op_cycles", "times_taken"]


def merged_transfers(schedule: Schedule) -> frozenset[Op]:
    """Transfers with the host that directly follow another one."""
    return frozenset(
        second
        for order in schedule.orders.values()
        for first, second in pairwise(order)
        if _is_transfer(first) and _is_transfer(second)
    )


def _is_transfer(op: Op) -> bool:
    return op.op_type in ("HostLoad", "HostStore") and "synthetic" not in op.attributes


def op_cycles(phases: Sequence[Phase], target: Target) -> Cycles:
    """The cycles of a single run of an op, if nothing of it is hidden."""
    cycles = Cycles()
    for phase in phases:
        cycles = cycles + phase.cycles(target)
    return cycles


def times_taken(op: Op, branch: str, times: int) -> int:
    """The runs of a branch of ``op`` if ``op`` runs ``times``; as many, if that is unknown."""
    taken = op.attributes.get("taken")
    if not isinstance(taken, tuple):
        return times
    then = times * int(taken[0]) // int(taken[1])
    return then if branch == "then_branch" else times - then


def find_hidden(
    graph: Graph, schedule: Schedule, phases: Mapping[Op, Sequence[Phase]], target: Target
) -> dict[Op, int]:
    """Cycles of each transfer that pass while its loop computes; for a single transfer.

    In an iteration, overlapped transfers run beside everything else: the longer of both counts.
    """
    return _Overlaps(schedule, phases, target).of(graph)


class _Overlaps:
    """Looks through the bodies of loops."""

    def __init__(
        self, schedule: Schedule, phases: Mapping[Op, Sequence[Phase]], target: Target
    ) -> None:
        self._schedule = schedule
        self._phases = phases
        self._target = target
        self._hidden: dict[Op, int] = {}

    def of(self, graph: Graph) -> dict[Op, int]:
        """The cycles hidden in all loops in ``graph``."""
        self._total(graph)
        return self._hidden

    def _total(self, graph: Graph) -> int:
        """Cycles of ``graph``, when what overlaps in it has been hidden."""
        order = self._schedule.orders[graph]
        computing = sum(self._op(op) for op in order)
        moving = list(self._overlapped(order))
        host = sum(self._host(op) for op in moving)
        if not host:
            return computing
        for op in moving:
            self._hidden[op] = self._host(op) * min(host, computing) // host
        return max(host, computing)

    def _op(self, op: Op) -> int:
        """Cycles of ``op`` and what is nested in it, but for overlapped transfers."""
        if op.attributes.get("overlapped"):
            return 0
        trips = op.attributes.get("trip_count", 1)
        times = max(trips, 1) if op.op_type == "Loop" and isinstance(trips, int) else 1
        own = op_cycles(self._phases.get(op, ()), self._target).total
        if op.op_type == "If" and list(self._overlapped([op])):
            return own
        inner = [self._total(nested) for nested in op.subgraphs.values()]
        return times * (own + max(inner, default=0))

    def _overlapped(self, order: Sequence[Op]) -> Iterator[Op]:
        """Overlapped transfers of a body; they stand in branches."""
        for op in order:
            if op.op_type == "If":
                branch = op.subgraphs["then_branch"]
                yield from (inner for inner in branch.ops if inner.attributes.get("overlapped"))

    def _host(self, op: Op) -> int:
        return op_cycles(self._phases.get(op, ()), self._target).host
