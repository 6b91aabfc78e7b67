"""Softmax in its stable form."""

from __future__ import annotations

from typing import Final

from popc.cost.mapping import WHOLE_ROWS
from popc.cost.rules.common import CostRule, row_dims, softmax_steps
from popc.cost.work import Work

__all__ = ["RULES"]


def _rows(work: Work) -> int:
    x = work.input()
    return max(x.size // max(x.shape[work.integer("axis", -1)] if x.rank else 1, 1), 1)


def _bring_rows_together(work: Work, index: int = 0) -> bool:
    """A tile takes whole rows; true if a matrix product has left them on several."""
    x, layout = work.input(index), work.layout_of(work.op.operand(index))
    if layout.row_parts == 1 or work.integer("axis", -1) not in {-1, x.rank - 1}:
        return False
    work.bring_rows_together(x.size, x.shape[-1], x.dtype, layout.row_parts)
    work.layout = WHOLE_ROWS
    return True


def _softmax(work: Work) -> None:
    _bring_rows_together(work)
    softmax_steps(work, work.input().size, _rows(work))


def _log_softmax(work: Work) -> None:
    """The logarithm of the sums is subtracted; nothing is divided."""
    _bring_rows_together(work)
    softmax_steps(work, work.input().size, _rows(work))
    work.unary("log", size=_rows(work))


def _gradient(work: Work) -> None:
    x, rows = work.input(), _rows(work)
    brought = [_bring_rows_together(work, index) for index in range(2)]
    if not any(brought):
        work.align(1)
    work.binary("add")
    work.reduce(row_dims(x.size, rows), x.dtype, whole=True)
    work.spread(rows, x.size, x.dtype)
    work.scaled("add", rows=rows)
    work.binary("add")


RULES: Final[dict[str, CostRule]] = {
    "LogSoftmax": _log_softmax,
    "LogSoftmaxGrad": _gradient,
    "Softmax": _softmax,
    "SoftmaxGrad": _gradient,
}
