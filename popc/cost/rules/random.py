"""Random numbers, by the generators of the tiles."""

from __future__ import annotations

from typing import Final

from popc.cost.formulas.movement import random_cycles
from popc.cost.mapping import lanes_of
from popc.cost.rules.common import CostRule, one_step_of
from popc.cost.work import Work

__all__ = ["RULES"]


def _drawn(*after: str) -> CostRule:
    def rule(work: Work) -> None:
        share, lanes = work.share_of_result(), lanes_of(work.result().dtype)
        work.compute("random", random_cycles(share, lanes), "Random")
        for name in after:
            one_step_of(work, name)

    return rule


def _seed(work: Work) -> None:
    """The seed of the run, changed by the number of the op."""
    one_step_of(work, "add")


RULES: Final[dict[str, CostRule]] = {
    "Dropout": _drawn(),
    "DropoutGrad": _drawn(),
    "Multinomial": _drawn("compare", "add"),
    "RandomNormal": _drawn("add"),
    "RandomSeed": _seed,
    "RandomUniform": _drawn("add"),
    "SeededDropout": _drawn(),
}
