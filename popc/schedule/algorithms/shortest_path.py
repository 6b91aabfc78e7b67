"""Shortest path: what is close to the end of the graph goes first."""

from __future__ import annotations

from popc.schedule.algorithms.kahn import list_order
from popc.schedule.problem import OrderingProblem

__all__ = ["shortest_path_order"]


def shortest_path_order(problem: OrderingProblem) -> list[int]:
    """An order that takes the ready node with the fewest nodes to one that none waits for."""
    distances = [0] * len(problem)
    for node in reversed(problem.topological()):
        others = problem.successors[node]
        if others:
            distances[node] = 1 + min([distances[other] for other in others])
    return list_order(problem, distances)
