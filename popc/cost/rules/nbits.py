"""Products with matrices of few bits a number, which become floats before they are multiplied."""

from __future__ import annotations

from typing import Final

from popc.cost.planner import ROWS
from popc.cost.rules.common import CostRule
from popc.cost.work import Work
from popc_runtime.format import DType

__all__ = ["RULES"]


def _matmul(work: Work) -> None:
    a, y = work.input(0), work.result()
    size = work.input(1).shape[0] * work.integer("K")
    work.binary("add", "add", dtype=DType.UINT8, size=size)
    work.cast(DType.UINT8, y.dtype, size)
    work.binary("add", "add", dtype=y.dtype, size=size)
    depth, columns = a.shape[-1], y.shape[-1]
    work.matmul(1, a.size // max(depth, 1), depth, columns, y.dtype, lie=(ROWS, ROWS))
    if work.has(5):
        work.bias(5, columns)


RULES: Final[dict[str, CostRule]] = {"MatMulNBits": _matmul}
