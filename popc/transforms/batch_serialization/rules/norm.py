"""Normalisations; those that take statistics of the batch stay whole."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Case, Cut, Rule, aligned, along

__all__ = ["RULES", "STATISTICS"]

STATISTICS: Final = "it normalises by statistics of the whole batch"


def _whole_batch(case: Case) -> Cut | str:
    del case
    return STATISTICS


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


RULES: Final[dict[str, Rule]] = {
    "BatchNormalization": along({0: 0}, (0,)),
    "BatchNormalizationTraining": _whole_batch,
    "GroupNormalization": along({0: 0}, (0,)),
    "InstanceNormalization": along({0: 0}, (0,)),
    "LRN": along({0: 0}, (0,)),
    "LayerNormalization": _rows,
    "RMSNormalization": _rows,
}
