"""Copies between chips, and what marks where they go."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Rule, elementwise

__all__ = ["RULES"]


RULES: Final[dict[str, Rule]] = {
    "Boundary": elementwise,
    "IpuCopy": elementwise,
}
