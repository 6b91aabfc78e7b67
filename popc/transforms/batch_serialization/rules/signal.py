"""Short Fourier transforms."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Rule, along

__all__ = ["RULES"]


RULES: Final[dict[str, Rule]] = {
    "STFT": along({0: 0}, (0,)),
}
