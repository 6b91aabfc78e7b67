"""Reductions along axes, cumulative sums and products."""

from __future__ import annotations

from math import ceil, log2
from typing import Final

from popc.cost.rules.common import CostRule, dims_along, one_step_of, row_dims
from popc.cost.work import Work

__all__ = ["RULES"]


def _reduced(
    before: tuple[str, ...] = (), after: tuple[str, ...] = (), *, maximum: bool = False
) -> CostRule:
    def rule(work: Work) -> None:
        x, y = work.input(), work.result()
        for name in before:
            work.unary(name, size=x.size, dtype=x.dtype)
        axes = work.integers("axes", (work.integer("axis", -1),) if "axis" in _names(work) else ())
        if y.size < x.size:
            along = {axis % x.rank for axis in axes} or set(range(x.rank))
            dims = dims_along(x.shape, along, work.layout_of(work.op.operand(0)))
            work.reduce(dims, x.dtype, maximum=maximum)
        for name in after:
            one_step_of(work, name)

    return rule


def _names(work: Work) -> tuple[str, ...]:
    return tuple(work.op.attributes)


def _hardmax(work: Work) -> None:
    x = work.input()
    rows = x.size // max(x.shape[work.integer("axis", -1)] if x.rank else 1, 1)
    work.reduce(row_dims(x.size, max(rows, 1)), x.dtype, maximum=True)
    work.spread(max(rows, 1), x.size, x.dtype)
    work.per_element(4)


def _scan(work: Work) -> None:
    """Doubling steps: each adds to every element the one that lies 2 ** step before it."""
    x = work.input()
    length = max(x.shape[work.integer("axis", -1)] if x.rank else 1, 2)
    start = len(work.phases)
    work.move(x)
    work.binary("add", size=x.size, dtype=x.dtype)
    work.repeat(start, ceil(log2(length)))


RULES: Final[dict[str, CostRule]] = {
    "ArgMax": _reduced(maximum=True),
    "ArgMin": _reduced(maximum=True),
    "CumProd": _scan,
    "CumProdGrad": _scan,
    "CumSum": _scan,
    "Hardmax": _hardmax,
    "ReduceL1": _reduced(("abs",)),
    "ReduceL2": _reduced((), ("sqrt",)),
    "ReduceLogSum": _reduced((), ("log",)),
    "ReduceLogSumExp": _reduced(("exp",), ("log",)),
    "ReduceMax": _reduced(maximum=True),
    "ReduceMean": _reduced(),
    "ReduceMin": _reduced(maximum=True),
    "ReduceProd": _reduced(),
    "ReduceSum": _reduced(),
    "ReduceSumSquare": _reduced(),
}
