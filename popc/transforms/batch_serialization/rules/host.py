"""Copies between compute and I/O tiles."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Rule, elementwise

__all__ = ["RULES"]


RULES: Final[dict[str, Rule]] = {
    "IoTileCopy": elementwise,
}
