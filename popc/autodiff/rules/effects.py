"""Gradients of ops that stand in a graph for what they do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.autodiff.backward import GRADIENT_PREFIX, Backward, GradientRule, no_gradient
from popc.ir import Tensor
from popc.ir.attributes import integer, text

__all__ = ["GRADIENTS"]


def _print(b: Backward) -> Sequence[Tensor | None]:
    """The gradient, printed too if the op asks for it."""
    if not integer(b.attributes, "gradient"):
        return [b.grad()]
    title = text(b.attributes, "title")
    own = integer(b.attributes, "own_title")
    other = f"{title}_gradient" if own else f"{GRADIENT_PREFIX}{title}"
    return [b.emit("PrintTensor", [b.grad()], {**b.attributes, "title": other})]


GRADIENTS: Final[dict[str, GradientRule]] = {
    "Abort": no_gradient,
    "Detach": no_gradient,
    "PrintTensor": _print,
}
