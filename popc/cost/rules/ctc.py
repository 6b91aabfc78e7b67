"""Connectionist temporal classification: a recurrence over time in the log domain."""

from __future__ import annotations

from typing import Final

from popc.cost.rules.common import CostRule
from popc.cost.work import Work

__all__ = ["RULES"]

# Cycles of log(exp(a) + exp(b)) of two floats.  A guess from its parts: an exponential (3) and a
# logarithm (6) by the table of `popc.cost.formulas.elementwise`, and seven or so to compare,
# subtract, add, load and store.
_LOG_ADD: Final = 16


def _recurrence(work: Work) -> None:
    """[T, N, C]: each step combines three cells; rows of the batch lie on tiles of their own."""
    x = work.input()
    times = x.shape[0]
    start = len(work.phases)
    work.receive("step", 4 * x.shape[-1])
    work.on_one_tile(x.shape[-1], 3 * _LOG_ADD)
    work.repeat(start, 2 * times)


RULES: Final[dict[str, CostRule]] = {"Ctc": _recurrence, "CtcBeamSearchDecoder": _recurrence}
