"""Ops that belong together, one behind the other."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from popc.ir import Op, order_closely
from popc.ops.constraints import Node

__all__ = ["together"]


def together(
    ops: Sequence[Op], later: Mapping[Node, Iterable[Node]], units: Mapping[Op, Hashable]
) -> dict[Hashable, list[Op]]:
    """The ops of each unit, in an order of units that is allowed, and close to that of ``ops``.

    Args:
        ops: In the order of execution.
        later: The nodes that wait for a node, and for nothing between the two.
        units: What each op belongs to; itself if it stands alone.  Ops of units that wait for each
            other stand alone, too.
    """
    units = dict(units)
    order = _order_of_units(ops, later, units)
    while len(order) < len(set(units.values())):
        placed = set(order)  # what waits for others amid its ops stays apart
        units.update({op: op for op in ops if units[op] not in placed})
        order = _order_of_units(ops, later, units)
    members: dict[Hashable, list[Op]] = {unit: [] for unit in order}
    for op in ops:
        members[units[op]].append(op)
    return members


def _order_of_units(
    ops: Sequence[Op], later: Mapping[Node, Iterable[Node]], units: Mapping[Op, Hashable]
) -> list[Hashable]:
    """The units in an order that is allowed, as close to that of ``ops`` as can be.

    Units that wait for each other are left out, and what waits for these.
    """
    follows = {units[op]: dict[Hashable, None]() for op in ops}
    for op in ops:
        for node in _next_ops(op, later):
            if node in units and units[node] != units[op]:
                follows[units[op]][units[node]] = None
    return order_closely(follows)


def _next_ops(op: Op, later: Mapping[Node, Iterable[Node]]) -> Iterator[Op]:
    """The ops that wait for ``op``, directly or behind barriers."""
    pending: list[Node] = [op]
    for node in pending:  # grows while it is walked
        for other in later.get(node, ()):
            if isinstance(other, Op):
                yield other
            else:
                pending.append(other)
