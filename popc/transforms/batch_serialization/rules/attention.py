"""Attention, and the turning of its operands by their positions."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import (
    FIRST_NOT_CUT,
    NOT_BATCH,
    Case,
    Combination,
    Cut,
    Rule,
    aligned,
)

__all__ = ["RULES"]

_MASK: Final = 3  # number of the operand


def _mask_axis(case: Case) -> int | None:
    """The batch axis of the mask, which broadcasts to [B, H, S, T]."""
    if not case.has(_MASK) or len(case.shape(_MASK)) < 4 or case.shape(_MASK)[0] == 1:
        return None
    return 0


def _attention(case: Case) -> Cut | str:
    """q, k, v, mask, lengths."""
    if all(case.axis(index) != 0 for index in range(3)):
        return NOT_BATCH
    return case.cut({0: 0, 1: 0, 2: 0, _MASK: _mask_axis(case), 4: 0}, (0, 0))


def _attention_grad(case: Case) -> Cut | str:
    """The operands of the attention, the gradient of its result, the result."""
    if all(case.axis(index) != 0 for index in (0, 1, 2, 5, 6)):
        return NOT_BATCH
    mask = _mask_axis(case)
    operands = {0: 0, 1: 0, 2: 0, _MASK: mask, 4: 0, 5: 0, 6: 0}
    return case.cut(operands, (0, 0, 0, Combination.SUM if mask is None else mask))


def _rotary(case: Case) -> Cut | str:
    axis, shape = case.axis(0), case.shape(0)
    if axis is None or axis == len(shape) - 1:
        return FIRST_NOT_CUT
    tables = {index: aligned(case.shape(index), len(shape), axis) for index in (1, 2)}
    return case.cut({0: axis, **tables}, (axis,))


RULES: Final[dict[str, Rule]] = {
    "Attention": _attention,
    "AttentionGrad": _attention_grad,
    "RotaryEmbedding": _rotary,
}
