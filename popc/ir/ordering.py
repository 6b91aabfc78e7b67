"""The order that ops of a graph must keep, beyond what data flow asks for.

The pairs outlive the replacement of ops: see `Ordering.replace` and `Ordering.remove`, which
`Graph` calls.  Passes add pairs by way of `popc.ops.sequencer`, which knows what contradicts what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

__all__ = ["OrderedPair", "Ordering", "find_reached", "order_by_links", "order_closely"]

_T = TypeVar("_T")  # `Op`, of the module above this one


class OrderedPair(NamedTuple, Generic[_T]):
    """``first`` runs before ``second``.

    Attributes:
        first, second: The ops.
        tied: They run as close to each other as can be.
        wished: The pair saves memory, and is given up where it is in the way of what is required.
    """

    first: _T
    second: _T
    tied: bool = False
    wished: bool = False


class Ordering(Generic[_T]):
    """The ordered pairs of one graph."""

    def __init__(self) -> None:
        # second -> their pair, by first; and firsts by second
        self._later: dict[_T, dict[_T, OrderedPair[_T]]] = {}
        self._earlier: dict[_T, dict[_T, None]] = {}

    def __iter__(self) -> Iterator[OrderedPair[_T]]:
        for others in self._later.values():
            yield from others.values()

    @property
    def is_empty(self) -> bool:
        """True if nothing is required or wished."""
        return not self._later

    def __contains__(self, op: _T) -> bool:
        return op in self._later or op in self._earlier

    def add(self, pair: OrderedPair[_T]) -> None:
        """One more.  A pair that is tied already stays tied, one that is required is no wish."""
        first, second = pair.first, pair.second
        assert first is not second, f"{first!r} cannot run before itself"
        later = self._later.setdefault(first, {})
        known = later.get(second, pair)
        tied, wished = known.tied or pair.tied, known.wished and pair.wished
        later[second] = OrderedPair(first, second, tied, wished)
        self._earlier.setdefault(second, {})[first] = None

    def discard(self, pair: OrderedPair[_T]) -> None:
        """Forget a pair that is there."""
        del self._later[pair.first][pair.second]
        del self._earlier[pair.second][pair.first]
        for table, op in ((self._later, pair.first), (self._earlier, pair.second)):
            if not table[op]:
                del table[op]

    def replace(self, old: _T, new: _T) -> None:
        """Let ``new`` take the place of ``old`` in every pair."""
        for pair in self._pairs_of(old):
            self.discard(pair)
            first, second = (new if op is old else op for op in (pair.first, pair.second))
            if first is not second:
                self.add(pair._replace(first=first, second=second))

    def remove(self, op: _T) -> None:
        """Forget ``op``; what came before it still comes before what came after it."""
        pairs = self._pairs_of(op)
        for pair in pairs:
            self.discard(pair)
        for before in [pair for pair in pairs if pair.second is op]:
            for after in [pair for pair in pairs if pair.first is op]:
                wished = before.wished or after.wished
                self.add(OrderedPair(before.first, after.second, wished=wished))

    def copy(self, twins: Mapping[_T, _T], other: Ordering[_T]) -> None:
        """Require of ``twins`` in ``other`` what is required here of the ops that they copy."""
        for pair in self:
            if pair.first in twins and pair.second in twins:
                other.add(pair._replace(first=twins[pair.first], second=twins[pair.second]))

    def _pairs_of(self, op: _T) -> list[OrderedPair[_T]]:
        before = [self._later[first][op] for first in self._earlier.get(op, ())]
        return [*before, *self._later.get(op, {}).values()]


class _Result(Protocol):
    @property
    def uses(self) -> Mapping[Any, int]:
        """Its readers, and how often each reads it."""


class _Linked(Protocol):
    @property
    def outputs(self) -> Sequence[_Result]:
        """The results, in order."""


_Op = TypeVar("_Op", bound=_Linked)


def order_by_links(ops: Iterable[_Op]) -> list[_Op]:
    """``ops``, each after all that it reads; among ready ones, in the given order.

    Ops in cycles are left out, and what follows them.
    """
    users: dict[_Op, Iterable[_Op]] = {}  # of each op, once for each result that they read
    for op in ops:
        results = op.outputs
        one = len(results) == 1  # as for the most part
        users[op] = results[0].uses if one else [user for it in results for user in it.uses]
    waiting = dict.fromkeys(users, 0)
    for user in chain.from_iterable(users.values()):
        waiting[user] += 1
    order = [op for op, count in waiting.items() if count == 0]
    for op in order:  # grows while it is walked
        for user in users[op]:
            left = waiting[user] = waiting[user] - 1
            if left == 0:
                order.append(user)
    return order


def order_closely(follows: Mapping[_T, Iterable[_T]]) -> list[_T]:
    """The items in an order that is allowed, as close to the given one as can be.

    ``follows`` gives, for each item, those that come after it, each once.  Items in cycles are
    left out, and what follows them.
    """
    items, waiting = list(follows), dict.fromkeys(follows, 0)
    for others in follows.values():
        for other in others:
            waiting[other] += 1
    numbers = {item: number for number, item in enumerate(items)}
    ready = [numbers[item] for item, count in waiting.items() if count == 0]  # sorted: a heap
    order: list[_T] = []
    while ready:
        order.append(items[heappop(ready)])
        for other in follows[order[-1]]:
            waiting[other] -= 1
            if waiting[other] == 0:
                heappush(ready, numbers[other])
    return order


def find_reached(first: _T, inner: Callable[[_T], Sequence[_T]]) -> tuple[_T, ...]:
    """``first`` and all inside of it, each once, after all that hold it."""
    found: dict[_T, None] = {}

    def collect(item: _T) -> None:
        if item not in found:
            for other in reversed(inner(item)):
                collect(other)
            found[item] = None

    collect(first)
    return tuple(reversed(found))
