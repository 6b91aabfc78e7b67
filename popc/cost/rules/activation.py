"""Activations: non-linearities of popnn where there is one, else map expressions."""

from __future__ import annotations

from typing import Final

from popc.cost.formulas.activation import STEPS
from popc.cost.rules.common import CostRule, steps

__all__ = ["RULES"]

RULES: Final[dict[str, CostRule]] = {name: steps(*names) for name, names in STEPS.items()}
