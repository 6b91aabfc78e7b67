"""Changes of the element type."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Rule, elementwise, like_first

__all__ = ["RULES"]


RULES: Final[dict[str, Rule]] = {
    "BitCast": like_first,
    "Cast": elementwise,
}
