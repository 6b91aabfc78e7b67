"""Where ops of the parts of a batch stand: in which pass over the parts, and with which part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from popc.ir import Graph, Op, OpSettings

__all__ = ["Position", "edges_before", "find_positions"]


class Position(NamedTuple):
    """Ops run in the order of their positions."""

    level: int
    phase: int


def edges_before(graph: Graph) -> dict[Op, dict[Op, None]]:
    """For each op, those that must come before it: by data flow, or because it is required.

    Between the bins of a partition stands an op that is none of the graph's.
    """
    before: dict[Op, dict[Op, None]] = {
        op: {one.producer: None for one in op.present_inputs if one.producer is not None}
        for op in graph.ops
    }
    for first, second, _ in graph.ordering:
        before[second][first] = None
    for bins in _partitions(graph).values():
        for earlier, later in pairwise(sorted(bins)):
            barrier = Op("barrier", [], [], {}, OpSettings(), {})
            before[barrier] = dict.fromkeys(bins[earlier])
            for op in bins[later]:
                before[op][barrier] = None
    return before


def _partitions(graph: Graph) -> dict[str, dict[int, list[Op]]]:
    """The ops of each bin, by partition."""
    found: dict[str, dict[int, list[Op]]] = defaultdict(lambda: defaultdict(list))
    for op in graph.ops:
        for name, number in op.settings.bins:
            found[name][number].append(op)
    return found


def find_positions(before: Mapping[Op, Mapping[Op, None]]) -> dict[Op, Position]:
    """The positions of ops that belong to parts, as early as can be.

    An op comes behind those of ``before``; if such a one belongs to a later part, or to none but
    reads parts itself, only the next pass over the parts can have it.
    """
    waiting = {op: len(others) for op, others in before.items()}
    after: dict[Op, list[Op]] = {op: [] for op in before}
    for op, others in before.items():
        for other in others:
            after[other].append(op)
    order = [op for op, count in waiting.items() if count == 0]
    levels: dict[Op, int] = {}
    for op in order:  # grows while it is walked
        levels[op] = max((levels[one] + _is_behind(op, one) for one in before[op]), default=0)
        for other in after[op]:
            waiting[other] -= 1
            if waiting[other] == 0:
                order.append(other)
    return {
        op: Position(level, op.settings.batch_phase)
        for op, level in levels.items()
        if op.settings.batch_phase is not None
    }


def _is_behind(op: Op, other: Op) -> bool:
    """Whether ``op``, which needs ``other``, cannot run in the same pass over the parts."""
    own, its = op.settings.batch_phase, other.settings.batch_phase
    return its is not None and (own is None or own < its)
