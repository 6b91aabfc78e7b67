"""Convolutions, whose batch is dimension 0."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Combination, Rule, along

__all__ = ["RULES"]


RULES: Final[dict[str, Rule]] = {
    "Col2Im": along({0: 0}, (0,)),
    "Conv": along({0: 0, 3: 0}, (0,)),
    "ConvTranspose": along({0: 0}, (0,)),
    "ConvWeightsGrad": along({0: 0, 1: 0}, (Combination.SUM,)),
    "DeformConv": along({0: 0, 2: 0, 4: 0}, (0,)),
    "DeformConvGrad": along({0: 0, 1: 0, 3: 0, 4: 0}, (0, Combination.SUM, 0, 0)),
}
