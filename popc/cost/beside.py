"""The work of chips at the same time, where no pipeline makes them: between what they wait for.

Tiles only wait for tiles that they hear from, so that chips go their own ways until a copy between
them, a collective, a choice or a loop.  A transfer with the host is awaited by all (the default
pattern of syncs); not so in execution phases, which are made for chips that transfer and compute in
turns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from popc.cost.chips import chip_of
from popc.cost.phases import Cycles
from popc.cost.pipeline import pipeline_step
from popc.cost.transfers import TRANSFERS, times_taken
from popc.ir import Graph, Op
from popc.ops.control import callee_of
from popc.schedule import Schedule

__all__ = ["cycles_beside", "meets"]

_MEETINGS: Final = frozenset(
    {
        "AllToAll",
        "IpuCopy",
        "ReplicatedAllGather",
        "ReplicatedAllReduce",
        "ReplicatedBroadcast",
        "ReplicatedReduceScatter",
    }
)


def cycles_beside(
    graph: Graph, schedule: Schedule, cost: Callable[[Op], Cycles], chips: int
) -> Cycles:
    """The cycles of a run of ``graph`` that pass while a slower chip works; ``cost`` of one op."""
    return _Chips(schedule, cost, chips).beside(graph, 1) if chips > 1 else Cycles()


def meets(graph: Graph, op: Op) -> bool:
    """True if all chips come together for ``op``, or a pipeline says what is beside it."""
    if op.subgraphs or op.op_type in _MEETINGS or callee_of(op) is not None:
        return True
    if op.op_type in TRANSFERS:
        return op.settings.execution_phase is None
    return pipeline_step(graph, op) is not None


class _Chips:
    def __init__(self, schedule: Schedule, cost: Callable[[Op], Cycles], chips: int) -> None:
        self._schedule = schedule
        self._cost = cost
        self._chips = chips

    def beside(self, graph: Graph, times: int) -> Cycles:
        """The cycles that pass beside others when ``graph`` runs ``times`` times."""
        found = Cycles()
        alone: dict[int, Cycles] = defaultdict(Cycles)  # since chips have met
        for op in self._schedule.orders[graph]:
            if meets(graph, op):
                found = found + _all_but_longest(alone) * times
                alone.clear()
                for nested, runs in self._nested(op, times):
                    found = found + self.beside(nested, runs)
            else:
                chip = chip_of(op, self._chips)
                alone[chip] = alone[chip] + self._cost(op)
        return found + _all_but_longest(alone) * times

    def _nested(self, op: Op, times: int) -> Iterator[tuple[Graph, int]]:
        """The graphs that run inside ``op``, and how often; of branches, those that are taken."""
        callee = callee_of(op)
        if callee is not None:
            yield callee, times
        elif op.op_type == "Loop":
            trips = op.attributes.get("trip_count", -1)
            count = trips if isinstance(trips, int) and trips >= 0 else 1
            yield from ((nested, times * count) for nested in op.subgraphs.values())
        elif "taken" in op.attributes:
            for name, nested in op.subgraphs.items():
                yield nested, times_taken(op, name, times)


def _all_but_longest(chips: dict[int, Cycles]) -> Cycles:
    total = Cycles()
    for spent in chips.values():
        total = total + spent
    longest = max(chips.values(), key=lambda chip: chip.total, default=Cycles())
    return total + longest * -1
