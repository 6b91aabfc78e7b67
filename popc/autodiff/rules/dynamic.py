"""Gradients of slices at run-time offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Tensor
from popc.ir.attributes import integer
from popc.ops.dynamic import NO_OVERLAP

__all__ = ["GRADIENTS"]


def _at(b: Backward, op_type: str, *operands: Tensor) -> Tensor:
    """An op on the same slice of another tensor."""
    first, *others = operands
    window = {name: value for name, value in b.attributes.items() if name != NO_OVERLAP}
    return b.emit(op_type, [first, b.input(1), *others], window)


def _slice(b: Backward) -> Sequence[Tensor | None]:
    return [_at(b, "DynamicUpdate", b.zeros(b.input(0).type), b.grad())]


def _update(b: Backward) -> Sequence[Tensor | None]:
    first = None
    if b.wants(0):
        apart = integer(b.attributes, NO_OVERLAP, 0)
        first = b.grad() if apart else _at(b, "DynamicZero", b.grad())
    return [first, None, _at(b, "DynamicSlice", b.grad()) if b.wants(2) else None]


def _add(b: Backward) -> Sequence[Tensor | None]:
    return [b.grad(), None, _at(b, "DynamicSlice", b.grad()) if b.wants(2) else None]


def _zero(b: Backward) -> Sequence[Tensor | None]:
    return [_at(b, "DynamicZero", b.grad())]


GRADIENTS: Final[dict[str, GradientRule]] = {
    "DynamicAdd": _add,
    "DynamicSlice": _slice,
    "DynamicUpdate": _update,
    "DynamicZero": _zero,
}
