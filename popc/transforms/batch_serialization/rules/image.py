"""Samples of images at positions."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Rule, along

__all__ = ["RULES"]


RULES: Final[dict[str, Rule]] = {
    "GridSample": along({0: 0, 1: 0}, (0,)),
    "GridSampleGrad": along({0: 0, 1: 0}, (0,)),
    "GridSampleGridGrad": along({0: 0, 1: 0, 2: 0}, (0,)),
}
