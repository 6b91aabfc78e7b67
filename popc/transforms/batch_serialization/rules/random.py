"""Dropouts: the gradient of one whose mask is an operand, and those by a seed."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Case, Rule, like_first

__all__ = ["RULES"]


def _seeded(case: Case) -> str:
    """The place in the whole decides what is dropped."""
    del case
    return "parts would draw other random numbers"


RULES: Final[dict[str, Rule]] = {
    "DropoutGrad": like_first,
    "SeededDropout": _seeded,
}
