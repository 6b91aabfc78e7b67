"""Cut ops that one pass over the parts can compute."""

from __future__ import annotations

from popc.ir import Graph, Op
from popc.transforms.batch_serialization.analysis import Analysis

__all__ = ["find_groups"]


def find_groups(graph: Graph, analysis: Analysis) -> list[list[Op]]:
    """The cut ops in groups, each in topological order.

    Part p of a group needs no other part of it, and no group needs a later one.  So all of a
    group's part 0 may run before its part 1, and so on; whole ops run between groups.  Groups are
    as few as can be.
    """
    groups: list[list[Op]] = []
    # For each op the number of the group that it belongs to; whole ops come before the group.
    numbers: dict[Op, int] = {}
    for op in graph.topological():
        number = 0
        for tensor in op.present_inputs:
            producer = tensor.producer
            if producer is None:
                continue
            is_behind = producer in analysis.cuts and not analysis.crosses(tensor, op)
            number = max(number, numbers[producer] + is_behind)
        numbers[op] = number
        if op in analysis.cuts:
            groups.extend([] for _ in range(number + 1 - len(groups)))
            groups[number].append(op)
    return groups
