"""Gradients of normalisations; those through statistics of the batch stay whole."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Case, Combination, Cut, Rule, along
from popc.transforms.batch_serialization.rules.norm import STATISTICS

__all__ = ["RULES"]

_SUM: Final = Combination.SUM


def _batch_grad(case: Case) -> Cut | str:
    if case.integer("training_mode"):
        return STATISTICS
    return along({0: 0, 1: 0}, (0, _SUM, _SUM))(case)


def _rows_grad(case: Case) -> Cut | str:
    """dY, X, scale of a row, mean and deviation: the gradients of X, scale and bias."""
    axis = case.axis(1) if case.axis(0) is None else case.axis(0)
    if axis is None or axis >= case.integer("axis") % len(case.shape(0)):
        return "its batch is among what is normalised"
    return case.cut({0: axis, 1: axis, 3: axis, 4: axis}, (axis, _SUM, _SUM))


def _lrn_grad(case: Case) -> Cut | str:
    if 0 not in case.axes:
        return "its operands are not cut"
    return case.cut(dict.fromkeys(range(len(case.axes)), 0), (0,))


RULES: Final[dict[str, Rule]] = {
    "BatchNormalizationGrad": _batch_grad,
    "GroupNormalizationGrad": along({0: 0, 1: 0}, (0, _SUM, _SUM)),
    "InstanceNormalizationGrad": along({0: 0, 1: 0}, (0, _SUM, _SUM)),
    "LRNGrad": _lrn_grad,
    "LayerNormalizationGrad": _rows_grad,
    "RMSNormalizationGrad": _rows_grad,
}
