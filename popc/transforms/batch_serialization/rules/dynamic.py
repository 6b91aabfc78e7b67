"""Slices at offsets that are known at run time."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import FIRST_NOT_CUT, Case, Cut, Rule

__all__ = ["RULES"]


def _dynamic_slice(case: Case) -> Cut | str:
    axis = case.axis(2) if case.axis(0) is None else case.axis(0)
    if axis is None:
        return FIRST_NOT_CUT
    if axis in [dim % len(case.shape(0)) for dim in case.integers("axes")]:
        return "it slices the batch"
    return case.cut({0: axis, 2: axis}, (axis,))


RULES: Final[dict[str, Rule]] = {
    "DynamicAdd": _dynamic_slice,
    "DynamicSlice": _dynamic_slice,
    "DynamicUpdate": _dynamic_slice,
    "DynamicZero": _dynamic_slice,
}
