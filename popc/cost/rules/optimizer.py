"""Steps of optimizers: map expressions over a weight and its state."""

from __future__ import annotations

from typing import Final

from popc.cost.rules.common import CostRule, scaled_add, steps
from popc.cost.work import Work

__all__ = ["RULES"]


def _norm(work: Work) -> None:
    """The sum of squares of all elements, on its way to a trust ratio."""
    x = work.input()
    work.unary("square", size=x.size, dtype=x.dtype)
    work.reduce(((x.size, True),), x.dtype)


def _scalars(work: Work) -> None:
    work.on_one_tile(max(work.result().size, 1), 20)


def _histogram(work: Work) -> None:
    x = work.input()
    work.per_element(6, size=x.size)
    work.reduce(((work.machine.target.compute_tiles, True),), work.result().dtype)


RULES: Final[dict[str, CostRule]] = {
    "AccumulateMoment": steps("add", "add"),
    "AdaDeltaUpdater": steps("add", "sqrt", "add", "sqrt", "divide", "add"),
    "AdamUpdater": steps("add", "sqrt", "add", "divide", "add"),
    "AdamVarUpdate": steps("add", "add"),
    "Histogram": _histogram,
    "LambSquare": _norm,
    "LambVarUpdate": steps("add", "add"),
    "LossScaleUpdate": _scalars,
    "RMSPropUpdater": steps("add", "sqrt", "add", "divide"),
    "SGD0VarUpdate": scaled_add,
    "SGD1AcclUpdate": scaled_add,
    "SGD1VarUpdate": steps("add"),
    "SGD2AcclUpdate": scaled_add,
    "SGDNesterovVarUpdate": steps("add", "add", "add"),
    "ScaledGradient": steps("add"),
    "ScaledVarUpdate": scaled_add,
}
