"""Clustering: what follows from one node alone runs in one go.

A cluster begins with a node and takes in whatever waits for nothing but members of the cluster, as
long as it has not come down again to what was live before it.  The clusters are then ordered as if
they were nodes, by what each adds to the live memory as a whole: so a stretch of high liveness does
not hide what comes behind it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from popc.options import TieBreaker
from popc.schedule.algorithms.kahn import kahn_order
from popc.schedule.flat import bytes_made
from popc.schedule.problem import OrderingProblem

__all__ = ["clustering_order"]


def clustering_order(problem: OrderingProblem) -> list[int]:
    """Order clusters greedily, and the nodes of each cluster too."""
    places = {node: place for place, node in enumerate(kahn_order(problem, TieBreaker.GREEDY))}
    clusters = _find_clusters(problem, list(places))
    members: dict[int, list[int]] = {}
    for node in places:  # in an order that the constraints allow
        members.setdefault(clusters[node], []).append(node)
    heads = list(members)
    order = kahn_order(_as_nodes(problem, clusters, members), TieBreaker.GREEDY)
    return [node for cluster in order for node in members[heads[cluster]]]


def _find_clusters(problem: OrderingProblem, order: list[int]) -> list[int]:
    """For each node the head of its cluster; nodes of different ranks are not mixed."""
    earlier = problem.predecessors()
    left = problem.count_readers()
    heads = list(range(len(order)))
    growth = [0] * len(order)  # of each cluster, by its head: bytes live more than before it
    made, frees, ranks = bytes_made(problem), problem.frees, problem.ranks
    for node in order:
        before, change = earlier[node], made[node]
        if before:
            head = heads[before[0]]
            fits = growth[head] > 0 and ranks[head] == ranks[node]
            if fits and (len(before) == 1 or all(heads[other] == head for other in before)):
                heads[node] = head
        for buffer in problem.reads[node]:
            left[buffer] -= 1
            if left[buffer] == 0:
                change -= frees[buffer]
        growth[heads[node]] += change
    return heads


def _as_nodes(
    problem: OrderingProblem, clusters: list[int], members: dict[int, list[int]]
) -> OrderingProblem:
    """The problem of ordering clusters; only what `kahn_order` looks at is filled in."""
    numbers = {head: number for number, head in enumerate(members)}
    successors = [
        dict.fromkeys(
            [
                numbers[clusters[other]]
                for node in nodes
                for other in problem.successors[node]
                if clusters[other] != head
            ]
        )
        for head, nodes in members.items()
    ]
    waiting = [0] * len(numbers)
    for others in successors:
        for other in others:
            waiting[other] += 1
    return replace(
        problem,
        members=[tuple(nodes) for nodes in members.values()],
        successors=[list(others) for others in successors],
        waiting=waiting,
        ranks=[problem.ranks[head] for head in members],
        ties=[
            (numbers[clusters[first]], numbers[clusters[second]])
            for first, second in problem.ties
            if clusters[first] != clusters[second]
        ],
        reads=[tuple(dict.fromkeys(buffers)) for buffers in _joined(problem.reads, members)],
        makes=_joined(problem.makes, members),
        rise=[0] * len(members),
        takes=[()] * len(members),
    )


def _joined(lists: list[tuple[int, ...]], members: dict[int, list[int]]) -> list[tuple[int, ...]]:
    """The items of the nodes of each cluster; most have one."""
    return [
        lists[head]
        if len(nodes) == 1
        else tuple(chain.from_iterable(map(lists.__getitem__, nodes)))
        for head, nodes in members.items()
    ]
