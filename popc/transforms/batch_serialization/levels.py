"""The places of ops of the parts of a batch: in which pass over the parts, with which part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from popc.ir import Op
from popc.ops.constraints import Barrier, Node

__all__ = ["Position", "find_positions"]


class Position(NamedTuple):
    """Ops run in the order of their positions."""

    level: int
    phase: int


def find_positions(before: Mapping[Node, Sequence[Node]]) -> dict[Op, Position]:
    """The positions of ops that belong to parts, as early as can be.

    An op comes behind those of ``before``, which are listed before it; if such a one belongs to a
    later part, or to none but waits for parts itself, only the next pass over the parts can have
    it.
    """
    levels: dict[Node, int] = {}
    found: dict[Op, Position] = {}
    for node, others in before.items():
        own = _phase(node)
        levels[node] = max(
            (levels[other_op] + _is_behind(own, _phase(other_op)) for other_op in others), default=0
        )
        if own is not None and not isinstance(node, Barrier):
            found[node] = Position(levels[node], own)
    return found


def _phase(node: Node) -> int | None:
    return None if isinstance(node, Barrier) else node.settings.batch_phase


def _is_behind(own: int | None, other: int | None) -> bool:
    """True if what waits for an op of part ``other`` cannot run in the same pass over the parts."""
    return other is not None and (own is None or own < other)
