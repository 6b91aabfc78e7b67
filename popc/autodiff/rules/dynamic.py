"""Gradients of slices at run-time offsets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Graph, Op, Tensor
from popc.ir.attributes import integer
from popc.ops.build import build
from popc.ops.dynamic import NO_OVERLAP

__all__ = ["GRADIENTS", "is_apart", "joined_slices"]


def _at(b: Backward, op_type: str, *operands: Tensor) -> Tensor:
    """An op on the same slice of another tensor."""
    first, *others = operands
    window = {name: value for name, value in b.attributes.items() if name != NO_OVERLAP}
    return b.emit(op_type, [first, b.input(1), *others], window)


def _slice(b: Backward) -> Sequence[Tensor | None]:
    operands = [b.zeros(b.input(0).type), b.input(1), b.grad()]
    return [b.emit("DynamicUpdate", operands, b.attributes)]


def is_apart(op: Op) -> bool:
    """True for a slice that has no element of another slice of its kind of the same tensor."""
    return op.op_type == "DynamicSlice" and bool(integer(op.attributes, NO_OVERLAP, 0))


def joined_slices(
    graph: Graph, partials: Sequence[Tensor], apart: Collection[Tensor]
) -> list[Tensor]:
    """Partial gradients of a tensor, those ``apart``, of such slices, written into one.

    If slices do overlap although the model says otherwise, the last one counts, as in PopART.
    """
    written = [partial for partial in reversed(partials) if partial in apart]
    if len(written) < 2:
        return list(partials)
    total, *others = written
    for partial in others:
        op = partial.producer
        assert op is not None, "the gradient of a slice is written"
        operands = [total, op.operand(1), op.operand(2)]
        total = build(graph, op.op_type, operands, dict(op.attributes), settings=op.settings).output
    return [total, *(partial for partial in partials if partial not in written)]


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
