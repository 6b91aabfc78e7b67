"""Trees: each tile keeps all of them, or they are spread, and each worker follows its rows."""

from __future__ import annotations

from math import log2
from typing import Final

from popc.cost.rules.common import CostRule, row_dims
from popc.cost.work import Work

__all__ = ["RULES"]

_STEP: Final = 12  # cycles of a worker: load a node and a number, compare, choose the child


def _ensemble(work: Work) -> None:
    """Ways through trees are independent: rows times trees of them, as deep as balanced trees."""
    x, nodes, trees = work.input(0), work.input(1).size, max(work.input(4).size, 1)
    depth = max(round(log2(nodes / trees + 1)), 1)
    ways = x.shape[0] * trees
    work.move(x, "rows")
    work.per_element(_STEP * depth, size=ways)
    work.reduce(row_dims(ways * work.result().shape[1], work.result().size), x.dtype)


RULES: Final[dict[str, CostRule]] = {"TreeEnsemble": _ensemble}
