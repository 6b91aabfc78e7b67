"""Reverse-mode differentiation of graphs: one gradient rule per op, one file per family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
    from popc.autodiff.gradients import GRADIENT_PREFIX, differentiate, gradient_name
    from popc.autodiff.rules import GRADIENTS, NOT_DIFFERENTIABLE

__all__ = [
    "GRADIENTS",
    "GRADIENT_PREFIX",
    "NOT_DIFFERENTIABLE",
    "differentiate",
    "gradient_name",
]

# Every compilation copies ops; only one that trains differentiates.
__getattr__ = lazy_names(
    __name__,
    {
        "GRADIENTS": "popc.autodiff.rules",
        "GRADIENT_PREFIX": "popc.autodiff.gradients",
        "NOT_DIFFERENTIABLE": "popc.autodiff.rules",
        "differentiate": "popc.autodiff.gradients",
        "gradient_name": "popc.autodiff.gradients",
    },
)
