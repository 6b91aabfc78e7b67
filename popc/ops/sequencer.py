"""The one way to require an order of ops: it knows what contradicts what.

Data, streams, variables, bins and required pairs (`popc.ops.constraints`) form a relation without
circles.  `Sequencer` keeps the nodes of the relation in an order that agrees with it, and mends
that order with every pair that is added (D. J. Pearce and P. H. J. Kelly, "A dynamic topological
sort algorithm for directed acyclic graphs", 2006), so that a question looks no further than from
the place of the one op to that of the other.  `popc.ops.check_order` asks the same naively.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

from popc.ir import Graph, Op, OrderedPair
from popc.ops.constraints import Barrier, Node, Precedence
from popc.ops.load import find_load_ops

__all__ = ["Sequencer", "give_up_wishes"]

_Neighbours: TypeAlias = Callable[[Node], Iterable[Node]]


class Sequencer:
    """Adds orders to one graph.

    What runs at load time has run before everything else: no order is required of it.  Whoever
    edits the graph otherwise needs another sequencer afterwards.

    Attributes:
        given_up: How many wishes have been in the way of what is required.
    """

    def __init__(self, graph: Graph, top: Graph) -> None:
        """For ``graph``, which is ``top`` or nested in it.

        Wishes that are in the way of what is required are given up.
        """
        self._graph = graph
        self._load = frozenset(find_load_ops(top) if graph is top else ())
        self.given_up = 0
        self._build()

    def may_precede(self, first: Op, second: Op) -> bool:
        """True if ``first`` can run before ``second``; wishes are not in the way."""
        if first is second or second in self._load:
            return False
        return first in self._load or not self._leads(second, first, self._required)

    def has_to_follow(self, op: Op) -> set[Op]:
        """All ops that have to run after ``op``; wishes do not count."""
        found: set[Node] = set()
        pending: list[Node] = [op]
        while pending:
            for later in self._required(pending.pop()):
                if later not in found:
                    found.add(later)
                    pending.append(later)
        return {node for node in found if not isinstance(node, Barrier)}

    def before(self) -> dict[Node, list[Node]]:
        """For each node what it directly has to wait for; wishes do not count.

        Nodes come behind those that they wait for.
        """
        found: dict[Node, list[Node]] = {node: [] for node in self._in_order()}
        for node in found:
            for later in self._required(node):
                found[later].append(node)
        return found

    def require(self, first: Op, second: Op, *, tied: bool = False) -> bool:
        """Let ``first`` run before ``second``, if it can; whether it can."""
        if not self.may_precede(first, second):
            return False
        if {first, second}.isdisjoint(self._load):
            while way := self._way(second, first):
                self._give_up(next(pair for pair in pairwise(way) if pair in self._wishes))
            self._wishes.pop((first, second), None)
            self._link(first, second)
        self._graph.ordering.add(OrderedPair(first, second, tied=tied))
        return True

    def wish(self, first: Op, second: Op) -> bool:
        """Let ``first`` run before ``second`` as long as nothing else contradicts; whether so."""
        if first is second or not {first, second}.isdisjoint(self._load):
            return False
        if self._leads(second, first, self._later.__getitem__):
            return False
        if second not in self._later[first]:
            self._wishes[first, second] = None
            self._link(first, second)
        self._graph.ordering.add(OrderedPair(first, second, wished=True))
        return True

    def fix(self, order: Sequence[Op]) -> None:
        """Let ops run in ``order``, which the scheduler has made and which so can be."""
        for first, second in pairwise(order):
            self._graph.ordering.add(OrderedPair(first, second))
        self._build()

    def raised(self, numbers: Mapping[Op, int]) -> dict[Op, int]:
        """``numbers``, each at least as high as those of all that the op has to wait for."""
        highest: dict[Node, int] = {}
        found: dict[Op, int] = {}
        for node, others in self.before().items():
            known = [highest[other_op] for other_op in others if other_op in highest]
            if not isinstance(node, Barrier) and node in numbers:
                known.append(numbers[node])
                found[node] = max(known)
            if known:
                highest[node] = max(known)
        return {op: found.get(op, number) for op, number in numbers.items()}

    def put_into_bins(self, partition: str, numbers: Mapping[Op, int]) -> dict[Op, int]:
        """Put ops into the bins of ``partition``, or into higher ones where they have to wait.

        Returns:
            The bins of all ops that are in one now: of none that runs at load time.
        """
        known = _bins_of(self._graph, partition)
        if known:
            self._build(without=partition)
        wanted = {**known, **numbers}
        found = self.raised({op: wanted[op] for op in wanted if op not in self._load})
        for op, number in found.items():
            others = tuple(bin_ for bin_ in op.settings.bins if bin_[0] != partition)
            op.settings = replace(op.settings, bins=(*others, (partition, number)))
        self._build()
        return found

    # -- the relation ----------------------------------------------------------------------------

    def _build(self, *, without: str = "") -> None:
        ordering = self._graph.ordering
        ops = [op for op in self._graph.ops if op not in self._load]
        required = [pair for pair in ordering if not pair.wished]
        found = Precedence.required(ops, required, without=without)
        wished = [pair for pair in ordering if pair.wished]
        self._wishes = self._granted(found, wished)
        order = found.topological()
        assert len(order) == len(found.successors), f"ops of {self._graph.name} wait for each other"
        self._later: dict[Node, dict[Node, None]] = found.successors
        self._earlier: dict[Node, dict[Node, None]] = {node: {} for node in order}
        for node in order:
            for later in self._later[node]:
                self._earlier[later][node] = None
        self._places = {node: place for place, node in enumerate(order)}
        for pair in wished:
            if (pair.first, pair.second) in self._wishes:
                continue
            if not self.wish(pair.first, pair.second):
                ordering.discard(pair)
                self.given_up += 1

    def _granted(
        self, found: Precedence, wished: Sequence[OrderedPair[Op]]
    ) -> dict[tuple[Node, Node], None]:
        """All wishes, added to ``found``, if together they contradict nothing; otherwise none.

        Mostly they do not, and to add them one by one takes long.
        """
        pairs = [(pair.first, pair.second) for pair in wished]
        if any(
            first is second or not {first, second}.isdisjoint(self._load) for first, second in pairs
        ):
            return {}
        new: dict[tuple[Node, Node], None] = {
            pair: None for pair in pairs if pair[1] not in found.successors[pair[0]]
        }
        for pair in new:
            found.add(*pair)
        if len(found.topological()) == len(found.successors):
            return new
        for pair in new:
            found.remove(*pair)
        return {}

    def _required(self, node: Node) -> Iterator[Node]:
        """The nodes that have to wait for ``node``, not by a wish alone."""
        return (later for later in self._later[node] if (node, later) not in self._wishes)

    def _in_order(self) -> list[Node]:
        return sorted(self._places, key=self._places.__getitem__)

    def _leads(self, node: Node, goal: Node, later: _Neighbours) -> bool:
        """True if there is a way from ``node`` to ``goal``."""
        return goal in self._within(node, later, self._places[goal])

    def _within(self, node: Node, later: _Neighbours, last: int) -> dict[Node, Node]:
        """The nodes that ``node`` leads to up to place ``last``, and from where; with itself."""
        found = {node: node}
        pending = [node] if self._places[node] <= last else []
        while pending:
            one = pending.pop()
            for other in later(one):
                if other not in found and self._places[other] <= last:
                    found[other] = one
                    pending.append(other)
        return found

    def _way(self, node: Node, goal: Node) -> list[Node]:
        """The nodes on a way from ``node`` to ``goal``; none if there is no way."""
        found = self._within(node, self._later.__getitem__, self._places[goal])
        if goal not in found:
            return []
        way = [goal]
        while way[-1] is not node:
            way.append(found[way[-1]])
        return way[::-1]

    def _give_up(self, pair: tuple[Node, Node]) -> None:
        first, second = pair
        del self._wishes[pair], self._later[first][second], self._earlier[second][first]
        assert not isinstance(first, Barrier), "wishes are about ops"
        assert not isinstance(second, Barrier), "wishes are about ops"
        self._graph.ordering.discard(OrderedPair(first, second))
        self.given_up += 1

    def _link(self, first: Node, second: Node) -> None:
        """Add an edge that closes no circle, and mend the places."""
        self._later[first][second] = None
        self._earlier[second][first] = None
        low, high = self._places[second], self._places[first]
        if low > high:
            return
        behind = self._within(second, self._later.__getitem__, high)
        ahead = self._from_below(first, low)
        moved = [*sorted(ahead, key=self._places.__getitem__),
                 *sorted(behind, key=self._places.__getitem__)]  # fmt: skip
        free = sorted(self._places[node] for node in moved)
        self._places.update(zip(moved, free, strict=True))

    def _from_below(self, node: Node, first: int) -> set[Node]:
        """The nodes from place ``first`` on that lead to ``node``, with itself."""
        found = {node}
        pending = [node]
        while pending:
            for other in self._earlier[pending.pop()]:
                if other not in found and self._places[other] >= first:
                    found.add(other)
                    pending.append(other)
        return found


def _bins_of(graph: Graph, partition: str) -> dict[Op, int]:
    bins = {op: dict(op.settings.bins) for op in graph.ops}
    return {op: own[partition] for op, own in bins.items() if partition in own}


def give_up_wishes(graph: Graph) -> int:
    """Forget wishes in the way of what has come to be required, in all graphs; how many."""
    wishing = [part for part in graph.walk() if any(pair.wished for pair in part.ordering)]
    return sum(Sequencer(nested, graph).given_up for nested in wishing)
