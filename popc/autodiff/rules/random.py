"""Gradients of ops that draw random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.autodiff.backward import Backward, GradientRule, no_gradient
from popc.ir import Tensor

__all__ = ["GRADIENTS"]


def _dropout(b: Backward) -> Sequence[Tensor | None]:
    """The same elements are dropped and the others scaled alike."""
    return [b.grad_op(b.output(1), b.input(1), b.input(2))]


def _seeded_dropout(b: Backward) -> Sequence[Tensor | None]:
    """The same elements are dropped: the same seed says which, so that no mask is kept."""
    return [b.emit("SeededDropout", [b.grad(), b.input(1), b.input(2), b.input(3)])]


GRADIENTS: Final[dict[str, GradientRule]] = {
    "Dropout": _dropout,
    "Multinomial": no_gradient,
    "RandomNormal": no_gradient,
    "RandomSeed": no_gradient,
    "RandomUniform": no_gradient,
    "SeededDropout": _seeded_dropout,
}
