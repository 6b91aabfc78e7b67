"""Views, joins and other ops that move elements."""

from __future__ import annotations

from math import prod
from typing import Final

from popc.transforms.batch_serialization.cut import Case, Cut, Rule, aligned

__all__ = ["RULES", "reshaped_axis"]

_NOT_CUT: Final = "its first operand is not cut"


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
        return _NOT_CUT
    place = reshaped_axis(case.shape(0), axis, shape, case.parts)
    if place is None:
        return f"no dimension of {list(shape)} has the batch of {list(case.shape(0))}"
    return case.cut({0: axis}, (place,), {"shape": case.part_shape(shape, place)})


def _transpose(case: Case) -> Cut | str:
    axis = case.axis(0)
    if axis is None:
        return _NOT_CUT
    return case.cut({0: axis}, (case.integers("perm").index(axis),))


def _expand(case: Case) -> Cut | str:
    axis, shape = case.axis(0), case.integers("shape")
    if axis is None:
        return _NOT_CUT
    place = axis + len(shape) - len(case.shape(0))
    return case.cut({0: axis}, (place,), {"shape": case.part_shape(shape, place)})


def _concat(case: Case) -> Cut | str:
    along = case.integer("axis")
    axis = next((dim for dim in case.axes if dim not in (None, along)), None)
    if axis is None:
        return "it joins along the batch"
    return case.cut(dict.fromkeys(range(len(case.axes)), axis), (axis,))


def _beside_axis(case: Case) -> Cut | str:
    """Ops that work along attribute ``axis``, each row by itself."""
    axis = case.axis(0)
    if axis is None:
        return _NOT_CUT
    if "axis" not in case.op.attributes:
        return "its axis is known at run time only"
    if case.integer("axis") % len(case.shape(0)) == axis:
        return "it works along the batch"
    return case.cut({0: axis}, (axis,) * len(case.op.outputs))


def _slice(case: Case) -> Cut | str:
    axis = case.axis(0)
    if axis is None:
        return _NOT_CUT
    starts, sizes, steps = (case.integers(name) for name in ("starts", "sizes", "steps"))
    if (starts[axis], sizes[axis], steps[axis]) != (0, case.shape(0)[axis], 1):
        return "it slices the batch"
    return case.cut({0: axis}, (axis,), {"sizes": case.part_shape(sizes, axis)})


def _pad(case: Case) -> Cut | str:
    axis, pads = case.axis(0), case.integers("pads")
    if axis is None:
        return _NOT_CUT
    if pads[axis] or pads[axis + len(pads) // 2]:
        return "it pads the batch"
    return case.cut({0: axis}, (axis,))


def _tile(case: Case) -> Cut | str:
    axis = case.axis(0)
    if axis is None:
        return _NOT_CUT
    if case.integers("repeats")[axis] != 1:
        return "it repeats the batch"
    return case.cut({0: axis}, (axis,))


def _matrices(case: Case) -> Cut | str:
    """Ops on each matrix in the last two axes of the last operand that has any."""
    ranks = {index: len(case.shape(index)) for index in range(len(case.axes)) if case.has(index)}
    axis = next((dim for dim in case.axes if dim is not None), None)
    if axis is None or axis >= max(ranks.values()) - 2:
        return "its batch is part of the matrices"
    return case.cut({index: axis for index, rank in ranks.items() if rank > axis}, (axis,))


def _dynamic_slice(case: Case) -> Cut | str:
    axis = case.axis(2) if case.axis(0) is None else case.axis(0)
    if axis is None:
        return _NOT_CUT
    if axis in [dim % len(case.shape(0)) for dim in case.integers("axes")]:
        return "it slices the batch"
    return case.cut({0: axis, 2: axis}, (axis,))


def _reverse_sequence(case: Case) -> Cut | str:
    batch = case.integer("batch_axis")
    if case.axis(0) != batch and case.axis(1) != 0:
        return "its operands are cut along another axis than their batch"
    return case.cut({0: batch, 1: 0}, (batch,))


def _resize(case: Case) -> Cut | str:
    axis, shape = case.axis(0), case.integers("shape")
    if axis is None:
        return _NOT_CUT
    is_mapped = case.op.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    if shape[axis] != case.op.output.type.shape[axis] or is_mapped:
        return "it resizes the batch"
    if case.shape(0)[axis] != case.op.output.type.shape[axis]:
        return "it resizes the batch"
    return case.cut({0: axis}, (axis,), {"shape": case.part_shape(shape, axis)})


def _rotary(case: Case) -> Cut | str:
    axis, shape = case.axis(0), case.shape(0)
    if axis is None or axis == len(shape) - 1:
        return _NOT_CUT
    tables = {index: aligned(case.shape(index), len(shape), axis) for index in (1, 2)}
    return case.cut({0: axis, **tables}, (axis,))


RULES: Final[dict[str, Rule]] = {
    "Concat": _concat,
    "CumProd": _beside_axis,
    "CumSum": _beside_axis,
    "Det": _matrices,
    "DetGrad": _matrices,
    "DynamicAdd": _dynamic_slice,
    "DynamicSlice": _dynamic_slice,
    "DynamicUpdate": _dynamic_slice,
    "DynamicZero": _dynamic_slice,
    "Expand": _expand,
    "Hardmax": _beside_axis,
    "Inverse": _matrices,
    "LogSoftmax": _beside_axis,
    "Pad": _pad,
    "PadGrad": _pad,
    "Reshape": _reshape,
    "Resize": _resize,
    "ResizeGrad": _resize,
    "ReverseSequence": _reverse_sequence,
    "RotaryEmbedding": _rotary,
    "Slice": _slice,
    "Softmax": _beside_axis,
    "Split": _beside_axis,
    "Tile": _tile,
    "TopK": _beside_axis,
    "Transpose": _transpose,
    "Trilu": _matrices,
}
