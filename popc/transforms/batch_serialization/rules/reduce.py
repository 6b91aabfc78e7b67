"""Reductions: over other axes part by part, over the batch as results to be combined."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Case, Combination, Cut, Place, Rule, beside_axis

__all__ = ["RULES"]

# Of those that are missing, parts do not make up the whole.
_COMBINATIONS: Final = {
    "ReduceL1": Combination.SUM,
    "ReduceMax": Combination.MAX,
    "ReduceMean": Combination.MEAN,
    "ReduceMin": Combination.MIN,
    "ReduceProd": Combination.PRODUCT,
    "ReduceSum": Combination.SUM,
    "ReduceSumSquare": Combination.SUM,
}


def _reduce(case: Case) -> Cut | str:
    axis = case.axis(0)
    if axis is None:
        return "its operand is not cut"
    axes = sorted(dim % len(case.shape(0)) for dim in case.integers("axes"))
    if axis not in axes:
        return case.cut({0: axis}, (_kept(axis, axes, case.integer("keepdims", 1)),))
    combination = _COMBINATIONS.get(case.op.op_type)
    is_mean = combination is Combination.MEAN
    if combination is None or (is_mean and not case.op.output.type.dtype.is_float):
        return "it reduces the batch in a way that parts do not add up to"
    return case.cut({0: axis}, (combination,))


def _kept(axis: int, axes: list[int], keepdims: int) -> int:
    """The axis of the result that ``axis`` becomes."""
    return axis if keepdims else axis - sum(dim < axis for dim in axes)


def _arg(case: Case) -> Cut | str:
    axis, own = case.axis(0), case.integer("axis") % max(len(case.shape(0)), 1)
    if axis is None or axis == own:
        return "it works along the batch"
    place: Place = _kept(axis, [own], case.integer("keepdims", 1))
    return case.cut({0: axis}, (place,) * len(case.op.outputs))


RULES: Final[dict[str, Rule]] = {
    "ArgMax": _arg,
    "ArgMin": _arg,
    "CumProd": beside_axis,
    "CumSum": beside_axis,
    "Hardmax": beside_axis,
    **dict.fromkeys((*_COMBINATIONS, "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"), _reduce),
}
