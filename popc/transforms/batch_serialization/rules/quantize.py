"""Quantization, with one scale or one for each channel."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import FIRST_NOT_CUT, Case, Cut, Rule, elementwise

__all__ = ["RULES"]


def _per_channel(case: Case) -> Cut | str:
    """Scales and zero points are single numbers, or there is one for each index of ``axis``."""
    axis = case.axis(0)
    if axis is None:
        return FIRST_NOT_CUT
    scale, rank = case.shape(1), len(case.shape(0))
    if scale not in ((), (1,)) and (len(scale) > 1 or case.integer("axis", 1) % rank == axis):
        return "its scales differ along the batch"
    return case.cut({0: axis}, (axis,))


RULES: Final[dict[str, Rule]] = {
    "DequantizeLinear": _per_channel,
    "QuantizeLinear": _per_channel,
    "Requantize": elementwise,
}
