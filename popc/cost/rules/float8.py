"""Between floats of eight bits and others; the scale is multiplied by the conversion itself."""

from __future__ import annotations

from typing import Final

from popc.cost.formulas import movement
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
    """Vertices write rows that begin with words; without gaps between them, they move once more."""
    y = work.result()
    work.cast(work.input().dtype, y.dtype, y.size)
    row = y.shape[-1] if y.rank else 1
    if work.layout_of(work.op.operand(0)).apart and row % 8:
        bytes_ = work.share(y.size, y.dtype)
        cycles = movement.copy_cycles((bytes_, movement.smallest_piece(row)))
        work.compute("rows", cycles, "Copy", temporary=bytes_)


RULES: Final[dict[str, CostRule]] = {
    "CastThenPow2Scale": _decode,
    "Pow2ScaleThenCast": _encode,
}
