"""Ops whose results have the elements of their operands, one by one."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Case, Cut, Rule, aligned

__all__ = ["RULES", "elementwise"]


def elementwise(case: Case) -> Cut | str:
    """Results have the shape that the operands broadcast to."""
    rank = case.op.output.type.rank
    places = (
        axis + rank - len(case.shape(index))
        for index, axis in enumerate(case.axes)
        if axis is not None
    )
    place = next(places, None)
    if place is None:
        return "none of its operands is cut"
    operands = {
        index: aligned(case.shape(index), rank, place)
        for index in range(len(case.axes))
        if case.has(index)
    }
    return case.cut(operands, (place,) * len(case.op.outputs))


def _like_first(case: Case) -> Cut | str:
    """The result has the shape of operand 0; others with that shape are cut with it."""
    axis = case.axis(0)
    if axis is None:
        return "its first operand is not cut"
    shape = case.shape(0)
    operands = {
        index: axis
        for index in range(len(case.axes))
        if case.has(index) and case.shape(index) == shape
    }
    return case.cut(operands, (axis,) * len(case.op.outputs))


def _per_channel(case: Case) -> Cut | str:
    """Scales and zero points are single numbers, or there is one for each index of ``axis``."""
    axis = case.axis(0)
    if axis is None:
        return "its first operand is not cut"
    scale, rank = case.shape(1), len(case.shape(0))
    if scale not in ((), (1,)) and (len(scale) > 1 or case.integer("axis", 1) % rank == axis):
        return "its scales differ along the batch"
    return case.cut({0: axis}, (axis,))


RULES: Final[dict[str, Rule]] = {
    "BitCast": _like_first,
    "Boundary": elementwise,
    "Cast": elementwise,
    "Copy": elementwise,
    "DequantizeLinear": _per_channel,
    "Detach": elementwise,
    "DropoutGrad": _like_first,
    "IoTileCopy": elementwise,
    "IpuCopy": elementwise,
    "QuantizeLinear": _per_channel,
    "Requantize": elementwise,
}
