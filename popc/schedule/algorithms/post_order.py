"""Post-order: what a node waits for comes right before it."""

from __future__ import annotations

from popc.schedule.algorithms.kahn import list_order
from popc.schedule.problem import OrderingProblem

__all__ = ["post_order"]


def post_order(problem: OrderingProblem) -> list[int]:
    """Walk back from the nodes that none waits for, in their order; higher ranks go first."""
    earlier: list[list[int]] = [[] for _ in range(len(problem))]
    for node, others in enumerate(problem.successors):
        for other in others:
            earlier[other].append(node)
    places: dict[int, int] = {}
    entered: set[int] = set()
    stack = [node for node, others in enumerate(problem.successors) if not others][::-1]
    while stack:
        node = stack[-1]
        if node in entered:
            stack.pop()
            places.setdefault(node, len(places))
        else:
            entered.add(node)
            stack += [other for other in reversed(earlier[node]) if other not in entered]
    keys = [places[node] for node in range(len(problem))]
    return list_order(problem, keys)
