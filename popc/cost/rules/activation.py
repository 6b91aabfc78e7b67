"""Activations: non-linearities of popnn where there is one, else map expressions."""

from __future__ import annotations

from typing import Final

from popc.cost.formulas.activation import STEPS, steps_of_activation
from popc.cost.rules.common import CostRule, steps
from popc.cost.work import Work

__all__ = ["RULES"]


def _gelu(work: Work) -> None:
    steps(*steps_of_activation("Gelu", work.text("approximate")))(work)


RULES: Final[dict[str, CostRule]] = {
    **{name: steps(*names) for name, names in STEPS.items()},
    "Gelu": _gelu,
}
