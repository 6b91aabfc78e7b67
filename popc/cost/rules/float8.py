"""Between floats of eight bits and others; the scale is multiplied by the conversion itself."""

from __future__ import annotations

from typing import Final

from popc.cost.quarters import device_dtype
from popc.cost.rules.common import CostRule
from popc.cost.work import Work

__all__ = ["RULES"]


def _decode(work: Work) -> None:
    x, y = work.input().dtype, work.result()
    if device_dtype(work.op.output, work.machine.target) is x:  # products take it as it is
        return
    work.cast(x, y.dtype, y.size)


def _encode(work: Work) -> None:
    work.cast(work.input().dtype, work.result().dtype, work.result().size)


RULES: Final[dict[str, CostRule]] = {
    "CastThenPow2Scale": _decode,
    "Pow2ScaleThenCast": _encode,
}
