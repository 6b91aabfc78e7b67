"""Trees are steps: their slope is zero wherever there is one."""

from __future__ import annotations

from typing import Final

from popc.autodiff.backward import GradientRule, no_gradient

__all__ = ["GRADIENTS"]

GRADIENTS: Final[dict[str, GradientRule]] = {"TreeEnsemble": no_gradient}
