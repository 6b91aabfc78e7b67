"""A bound by cuts: how little can be live when a node begins.

By then all that it waits for has run, and nothing that waits for it.  Of the sets of nodes that may
have run, one leaves the fewest bytes live.  A buffer is live if its maker has run and one of its
readers has not, so that finding this set is finding a cut between what has run for sure and what
has not: the lightest cut is as heavy as the largest flow.
"""

from __future__ import annotations

from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from popc.schedule.bound import bound_columns, certain_steps
from popc.schedule.flat import find_native, flattened
from popc.schedule.problem import OrderingProblem

__all__ = ["bound_by_cuts", "least_by_definition", "least_bytes"]

_LINKS: Final = 100_000  # that are looked at, for all nodes together; for one node at least
_TOO_MANY: Final = 60_000  # links of a problem for which a single cut would take seconds
_ALONG: Final = 6  # nodes that are looked at because of where they are
_ENDLESS: Final = 1 << 62

# A node or a buffer, or what stands for all that has run for sure, and for all that has not.
_Point = tuple[str, int]
_Network = dict[_Point, dict[_Point, int]]
_HAS_RUN: Final[_Point] = ("has run", 0)
_HAS_NOT: Final[_Point] = ("has not", 0)


def bound_by_cuts(problem: OrderingProblem, enough: int) -> int:
    """A peak that no order goes below; what is ``enough`` ends the search for a higher one.

    Nodes all along the longest way through the problem are looked at, and those in whose steps most
    is certainly live; of problems with very many links, none.
    """
    links = sum(map(len, (*problem.successors, *problem.reads, *problem.makes)))
    if links > _TOO_MANY:
        return 0
    count = max(_LINKS // max(links, 1), 1)
    way = _longest_way(problem)
    along = [way[place] for place in _spread(len(way), min(-(-count // 2), _ALONG))]
    certain = certain_steps(problem).tolist()
    nodes = [node for node, members in enumerate(problem.members) if members]
    nodes.sort(key=certain.__getitem__, reverse=True)
    best = 0
    for chosen in (along, nodes[: count - len(along)]):
        if best < enough:
            best = max([best, *_peaks(problem, chosen)])
    return best


def _longest_way(problem: OrderingProblem) -> list[int]:
    """The nodes of a longest way, without barriers."""
    order = problem.topological()
    before, depth = [-1] * len(order), [0] * len(order)
    for node in order:
        for other in problem.successors[node]:
            if depth[other] <= depth[node]:
                before[other], depth[other] = node, depth[node] + 1
    node = max(order, key=depth.__getitem__, default=-1)
    way: list[int] = []
    while node >= 0:
        way.append(node)
        node = before[node]
    return [node for node in reversed(way) if problem.members[node]]


def _spread(length: int, count: int) -> list[int]:
    """Up to so many of the first places, as far apart as can be."""
    count = min(count, length)
    return [(2 * index + 1) * length // (2 * count) for index in range(count)]


def _peaks(problem: OrderingProblem, nodes: Sequence[int]) -> list[int]:
    """For each of some nodes, bytes without which it cannot run in any order."""
    peaks: list[int] = []
    for node, live in zip(nodes, least_bytes(problem, nodes), strict=True):
        taken = sum(take.nbytes for take in problem.takes[node])
        peaks.append(problem.base + live + problem.rise[node] - taken)
    return peaks


def least_bytes(problem: OrderingProblem, nodes: Sequence[int]) -> list[int]:
    """For each of some nodes, the fewest bytes of buffers live when it begins, in any order."""
    native = find_native()
    tables = flattened(problem, range(len(problem))) if native is not None else None
    if native is None or tables is None:
        return least_by_definition(problem, nodes)
    found = array("q", nodes)
    native.find_least_bytes(*tables, *bound_columns(problem, ()), array("q", nodes), found)
    return found.tolist()


def least_by_definition(problem: OrderingProblem, nodes: Sequence[int]) -> list[int]:
    """The definition of `least_bytes`, in Python."""
    found: list[int] = []
    for node in nodes:
        before = _reach(problem.predecessors(), node) - {node}
        behind = _reach(problem.successors, node)
        found.append(_largest_flow(_network(problem, before, behind)))
    return found


def _reach(links: Sequence[Iterable[int]], node: int) -> set[int]:
    found, queue = {node}, [node]
    for each in queue:  # grows while it is walked
        fresh = [other for other in links[each] if other not in found]
        found.update(fresh)
        queue += dict.fromkeys(fresh)
    return found


def _network(problem: OrderingProblem, before: set[int], behind: set[int]) -> _Network:
    """The bytes that go from each point to the others; what has no limit holds points together."""
    network: _Network = defaultdict(lambda: defaultdict(int))
    for start, end, room in _arcs(problem):
        network[start][end] += room
    for node in before:
        network[_HAS_RUN]["node", node] += _ENDLESS
    for node in behind:
        network["node", node][_HAS_NOT] += _ENDLESS
    return network


def _arcs(problem: OrderingProblem) -> Iterator[tuple[_Point, _Point, int]]:
    """From nodes to what they wait for and to their buffers, from these to who reads them."""

    def freed(buffer: int) -> _Point:
        leader = problem.freed_with[buffer]
        return _HAS_NOT if problem.stays[leader] else ("buffer", leader)

    for node, others in enumerate(problem.successors):
        for other in others:
            yield ("node", other), ("node", node), _ENDLESS
        for buffer in problem.reads[node]:
            yield ("buffer", buffer), ("node", node), _ENDLESS
        for buffer in problem.makes[node]:
            yield ("node", node), freed(buffer), problem.weights[buffer]
    for buffer in problem.initial:
        yield _HAS_RUN, freed(buffer), problem.weights[buffer]


def _largest_flow(network: _Network) -> int:
    """The bytes that go from the first point to the last, shortest ways first."""
    flow = 0
    while True:
        came: dict[_Point, _Point] = {_HAS_RUN: _HAS_RUN}
        queue: deque[_Point] = deque([_HAS_RUN])
        while queue and _HAS_NOT not in came:
            point = queue.popleft()
            for other, room in network[point].items():
                if room > 0 and other not in came:
                    came[other] = point
                    queue.append(other)
        if _HAS_NOT not in came:
            return flow
        way = [_HAS_NOT]
        while way[-1] != _HAS_RUN:
            way.append(came[way[-1]])
        arcs = list(pairwise(reversed(way)))
        most = min(network[start][end] for start, end in arcs)
        for start, end in arcs:
            network[start][end] -= most
            network[end][start] += most
        flow += most
