"""The gradient of dropout, whose mask is an operand."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Rule, like_first

__all__ = ["RULES"]


RULES: Final[dict[str, Rule]] = {
    "DropoutGrad": like_first,
}
