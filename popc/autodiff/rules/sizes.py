"""Places and sizes have no slope."""

from __future__ import annotations

from typing import Final

from popc.autodiff.backward import GradientRule, no_gradient

__all__ = ["GRADIENTS"]

GRADIENTS: Final[dict[str, GradientRule]] = dict.fromkeys(
    ("CheckSize", "NonMaxSuppression", "NonZero", "PlacesWithin"), no_gradient
)
