"""Operators of com.microsoft."""

from __future__ import annotations

from typing import Final

from popc.frontend.rules.microsoft import (
    attention,
    crop,
    group_query,
    nbits,
    norm,
    operators,
    quantize,
)

__all__ = ["FAMILIES"]

FAMILIES: Final = (
    attention,
    crop,
    group_query,
    nbits,
    norm,
    operators,
    quantize,
)
