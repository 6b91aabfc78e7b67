"""Operators that users have registered: nobody knows what they would cost on an IPU."""

from __future__ import annotations

from typing import Final

from popc.cost.rules.common import CostRule, custom

__all__ = ["RULES"]

# As much as a softmax takes for an element.
RULES: Final[dict[str, CostRule]] = {
    "Custom": custom(60),
    "CustomGrad": custom(60),
}
