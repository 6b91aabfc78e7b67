"""Pad and its gradient."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import FIRST_NOT_CUT, Case, Cut, Rule

__all__ = ["RULES"]


def _pad(case: Case) -> Cut | str:
    axis, pads = case.axis(0), case.integers("pads")
    if axis is None:
        return FIRST_NOT_CUT
    if pads[axis] or pads[axis + len(pads) // 2]:
        return "it pads the batch"
    return case.cut({0: axis}, (axis,))


RULES: Final[dict[str, Rule]] = {
    "Pad": _pad,
    "PadGrad": _pad,
}
