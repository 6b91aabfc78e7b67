"""The first few along an axis."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Rule, beside_axis

__all__ = ["RULES"]


RULES: Final[dict[str, Rule]] = {
    "TopK": beside_axis,
}
