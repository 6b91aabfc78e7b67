"""Put ops that do the same on different data together: which of them may wait for each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator

from popc.ir import Graph, Op

__all__ = ["depths", "groups_of", "independent"]


def groups_of(keyed: Iterable[tuple[Hashable, Op]]) -> Iterator[list[Op]]:
    """The ops that have a key in common with others, in order."""
    by_key: dict[Hashable, list[Op]] = defaultdict(list)
    for key, op in keyed:
        by_key[key].append(op)
    return (ops for ops in by_key.values() if len(ops) > 1)


def independent(ops: Iterable[Op]) -> list[Op]:
    """The first of ``ops``, and each further one that neither needs those chosen nor they it."""
    chosen: list[Op] = []
    behind: set[Op] = set()
    for op in ops:
        if op in behind:
            continue
        later = _behind(op)
        if later.isdisjoint(chosen):
            chosen.append(op)
            behind |= later
    return chosen


def _behind(op: Op) -> set[Op]:
    """All ops that need a result of ``op``, directly or not."""
    found: set[Op] = set()
    pending = [op]
    while pending:
        for tensor in pending.pop().outputs:
            for user in tensor.uses:
                if user not in found:
                    found.add(user)
                    pending.append(user)
    return found


def depths(graph: Graph) -> dict[Op, int]:
    """Of each op, the number of ops on the longest way to it; equal ones do not need each other."""
    found: dict[Op, int] = {}
    for op in graph.topological():
        before = (found[t.producer] for t in op.present_inputs if t.producer is not None)
        found[op] = 1 + max(before, default=-1)
    return found
