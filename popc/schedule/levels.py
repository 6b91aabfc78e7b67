"""Priorities as constraints: higher ranks come first, with all that they wait for."""

from __future__ import annotations

from dataclasses import replace

from popc.schedule.problem import OrderingProblem

__all__ = ["without_levels"]


def without_levels(problem: OrderingProblem) -> OrderingProblem:
    """The problem with barriers between nodes of different ranks, and without ranks and ties.

    A node has at least the rank of all that wait for it: they can only run early if it does.
    """
    ranks = list(problem.ranks)
    for node in reversed(problem.topological()):
        for other in problem.successors[node]:
            ranks[node] = max(ranks[node], ranks[other])
    levels = {rank: level for level, rank in enumerate(sorted(set(ranks), reverse=True))}
    count = len(levels) - 1  # barrier i stands behind level i
    successors = [list(others) for others in problem.successors] + [[] for _ in range(count)]
    waiting = list(problem.waiting) + [0] * count
    for node, rank in enumerate(ranks):
        level = levels[rank]
        if level < count:
            successors[node].append(len(problem) + level)
            waiting[len(problem) + level] += 1
        if level > 0:
            successors[len(problem) + level - 1].append(node)
            waiting[node] += 1
    nothing: list[tuple[()]] = [()] * count
    return replace(
        problem,
        members=[*problem.members, *nothing],
        successors=successors,
        waiting=waiting,
        ranks=[0] * len(successors),
        ties=[],
        reads=[*problem.reads, *nothing],
        makes=[*problem.makes, *nothing],
        rise=problem.rise + [0] * count,
        takes=[*problem.takes, *nothing],
    )
