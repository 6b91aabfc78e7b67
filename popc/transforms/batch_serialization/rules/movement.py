"""Views, joins and other ops that move elements."""

from __future__ import annotations

from math import prod
from typing import Final

from popc.transforms.batch_serialization.cut import (
    FIRST_NOT_CUT,
    NOT_BATCH,
    Case,
    Cut,
    Rule,
    beside_axis,
    elementwise,
    matrices,
)

__all__ = ["RULES"]


def reshaped_axis(
    shape: tuple[int, ...], axis: int, new: tuple[int, ...], parts: int
) -> int | None:
    """The axis of ``new`` whose parts hold the same elements as those of ``axis`` of ``shape``.

    Parts along an axis are runs of elements, the same run for each index of the axes before it.  So
    the axes before must count as many elements, and the new axis must have as many parts.
    """
    before = prod(shape[:axis])
    for place, dim in enumerate(new):
        if prod(new[:place]) == before and dim > 1 and dim % parts == 0:
            return place
    return None


def _reshape(case: Case) -> Cut | str:
    axis, shape = case.axis(0), case.integers("shape")
    if axis is None:
        return FIRST_NOT_CUT
    place = reshaped_axis(case.shape(0), axis, shape, case.parts)
    if place is None:
        return f"no dimension of {list(shape)} has the batch of {list(case.shape(0))}"
    return case.cut({0: axis}, (place,), {"shape": case.part_shape(shape, place)})


def _transpose(case: Case) -> Cut | str:
    axis = case.axis(0)
    if axis is None:
        return FIRST_NOT_CUT
    return case.cut({0: axis}, (case.integers("perm").index(axis),))


def _expand(case: Case) -> Cut | str:
    axis, shape = case.axis(0), case.integers("shape")
    if axis is None:
        return FIRST_NOT_CUT
    place = axis + len(shape) - len(case.shape(0))
    return case.cut({0: axis}, (place,), {"shape": case.part_shape(shape, place)})


def _concat(case: Case) -> Cut | str:
    along = case.integer("axis")
    axis = next((dim for dim in case.axes if dim not in (None, along)), None)
    if axis is None:
        return "it joins along the batch"
    return case.cut(dict.fromkeys(range(len(case.axes)), axis), (axis,))


def _slice(case: Case) -> Cut | str:
    axis = case.axis(0)
    if axis is None:
        return FIRST_NOT_CUT
    starts, sizes, steps = (case.integers(name) for name in ("starts", "sizes", "steps"))
    if (starts[axis], sizes[axis], steps[axis]) != (0, case.shape(0)[axis], 1):
        return "it slices the batch"
    return case.cut({0: axis}, (axis,), {"sizes": case.part_shape(sizes, axis)})


def _tile(case: Case) -> Cut | str:
    axis = case.axis(0)
    if axis is None:
        return FIRST_NOT_CUT
    if case.integers("repeats")[axis] != 1:
        return "it repeats the batch"
    return case.cut({0: axis}, (axis,))


def _reverse_sequence(case: Case) -> Cut | str:
    batch = case.integer("batch_axis")
    if case.axis(0) != batch and case.axis(1) != 0:
        return NOT_BATCH
    return case.cut({0: batch, 1: 0}, (batch,))


RULES: Final[dict[str, Rule]] = {
    "Concat": _concat,
    "Copy": elementwise,
    "Expand": _expand,
    "Reshape": _reshape,
    "ReverseSequence": _reverse_sequence,
    "Slice": _slice,
    "Split": beside_axis,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": matrices,
}
