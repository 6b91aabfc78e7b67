"""Post-order: what a node waits for comes right before it."""

from __future__ import annotations

from popc.schedule.algorithms.kahn import list_order
from popc.schedule.problem import OrderingProblem

__all__ = ["post_order"]


def post_order(problem: OrderingProblem) -> list[int]:
    """Walk back from the nodes that none waits for, in their order; higher ranks go first."""
    earlier = problem.predecessors()
    places = [-1] * len(problem)
    entered = [False] * len(problem)
    placed = 0
    stack = [node for node, others in enumerate(problem.successors) if not others][::-1]
    while stack:
        node = stack[-1]
        if not entered[node]:
            entered[node] = True
            stack += [other for other in reversed(earlier[node]) if not entered[other]]
            continue
        stack.pop()
        if places[node] < 0:
            places[node] = placed
            placed += 1
    return list_order(problem, places)
