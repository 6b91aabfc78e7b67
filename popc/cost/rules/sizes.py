"""Selections by data: poplibs has none, so that one tile writes what all have found."""

from __future__ import annotations

from math import ceil, log2
from typing import Final

from popc.cost.rules.common import CostRule, custom
from popc.cost.work import Work

__all__ = ["RULES"]


def _non_zero(work: Work) -> None:
    """Every tile counts and lists its own; the lists are moved together."""
    work.per_element(4, size=work.input().size)
    work.move(work.op.outputs[0].type, "places")


def _unique(work: Work) -> None:
    """A bitonic network, as for TopK, then a look at neighbours."""
    x = work.input()
    length = max(x.shape[work.integer("axis")], 2)
    depth = ceil(log2(length))
    start = len(work.phases)
    work.move(x)
    work.per_element(8, size=x.size)
    work.repeat(start, depth * (depth + 1) // 2)


def _non_max_suppression(work: Work) -> None:
    """Scores are sorted; then every selected box is compared with all others of its class."""
    scores = work.input(1)
    start = len(work.phases)
    work.move(work.input(0), "boxes")
    work.per_element(20, size=scores.size)
    work.repeat(start, max(work.integer("bound"), 1))


RULES: Final[dict[str, CostRule]] = {
    "CheckSize": custom(4),
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _non_zero,
    "PlacesWithin": custom(6),
    "Unique": _unique,
}
