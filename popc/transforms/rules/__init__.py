"""The local rules, in the order in which they are tried on an op."""

from typing import Final

from popc.transforms.rules import (
    arithmetic,
    bags,
    fast_math,
    gathers,
    identities,
    late_reshapes,
    movements,
    pads,
)
from popc.transforms.rules.rule import LocalRule

__all__ = ["RULES", "LocalRule"]

RULES: Final[tuple[LocalRule, ...]] = (
    *identities.RULES,
    *movements.RULES,
    *late_reshapes.RULES,
    *arithmetic.RULES,
    *pads.RULES,
    *gathers.RULES,
    *bags.RULES,
    *fast_math.RULES,
)
