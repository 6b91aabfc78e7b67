"""Gradients of copies between chips: they go back the way that values came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Tensor

__all__ = ["GRADIENTS"]


def _back(b: Backward) -> Sequence[Tensor | None]:
    way = {"source": b.attributes["destination"], "destination": b.attributes["source"]}
    return [b.emit("IpuCopy", [b.grad()], way)]


def _through(b: Backward) -> Sequence[Tensor | None]:
    return [b.emit("Boundary", [b.grad()])]


GRADIENTS: Final[dict[str, GradientRule]] = {"Boundary": _through, "IpuCopy": _back}
