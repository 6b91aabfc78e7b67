"""The CTC loss."""

from __future__ import annotations

from typing import Final

from popc.ir.attributes import text
from popc.transforms.batch_serialization.cut import LOSS_PLACES, Case, Cut, Rule

__all__ = ["RULES"]


def _ctc(case: Case) -> Cut | str:
    """Logarithms [T, N, C], labels [N, S], two lengths [N]."""
    place = LOSS_PLACES.get(text(case.op.attributes, "reduction"), 0)
    if case.axis(0) != 1 and not any(case.axis(index) == 0 for index in (1, 2, 3)):
        return "its operands are not cut"
    return case.cut({0: 1, 1: 0, 2: 0, 3: 0}, (place, 1))


RULES: Final[dict[str, Rule]] = {
    "Ctc": _ctc,
}
