"""Normalisations and their gradients; those that take statistics of the batch stay whole."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Case, Combination, Cut, Rule, aligned, along

__all__ = ["RULES"]

_SUM: Final = Combination.SUM
_STATISTICS: Final = "it normalises by statistics of the whole batch"


def _whole_batch(case: Case) -> Cut | str:
    del case
    return _STATISTICS


def _batch_grad(case: Case) -> Cut | str:
    if case.integer("training_mode"):
        return _STATISTICS
    return along({0: 0, 1: 0}, (0, _SUM, _SUM))(case)


def _rows(case: Case) -> Cut | str:
    """Operands broadcast to operand 0, whose axes from ``axis`` on are normalised."""
    axis, shape = case.axis(0), case.shape(0)
    if axis is None or axis >= case.integer("axis") % len(shape):
        return "its batch is among what is normalised"
    operands = {
        index: aligned(case.shape(index), len(shape), axis)
        for index in range(len(case.axes))
        if case.has(index)
    }
    return case.cut(operands, (axis,) * len(case.op.outputs))


def _rows_grad(case: Case) -> Cut | str:
    """dY, X, scale of a row, mean and deviation: the gradients of X, scale and bias."""
    axis = case.axis(1) if case.axis(0) is None else case.axis(0)
    if axis is None or axis >= case.integer("axis") % len(case.shape(0)):
        return "its batch is among what is normalised"
    return case.cut({0: axis, 1: axis, 3: axis, 4: axis}, (axis, _SUM, _SUM))


RULES: Final[dict[str, Rule]] = {
    "BatchNormalization": along({0: 0}, (0,)),
    "BatchNormalizationGrad": _batch_grad,
    "BatchNormalizationTraining": _whole_batch,
    "GroupNormalization": along({0: 0}, (0,)),
    "GroupNormalizationGrad": along({0: 0, 1: 0}, (0, _SUM, _SUM)),
    "InstanceNormalization": along({0: 0}, (0,)),
    "InstanceNormalizationGrad": along({0: 0, 1: 0}, (0, _SUM, _SUM)),
    "LRN": along({0: 0}, (0,)),
    "LayerNormalization": _rows,
    "LayerNormalizationGrad": _rows_grad,
    "RMSNormalization": _rows,
    "RMSNormalizationGrad": _rows_grad,
}
