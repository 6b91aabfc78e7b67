"""Resize and its gradient."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import FIRST_NOT_CUT, Case, Cut, Rule

__all__ = ["RULES"]


def _resize(case: Case) -> Cut | str:
    axis, shape = case.axis(0), case.integers("shape")
    if axis is None:
        return FIRST_NOT_CUT
    is_mapped = case.op.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    if shape[axis] != case.op.output.type.shape[axis] or is_mapped:
        return "it resizes the batch"
    if case.shape(0)[axis] != case.op.output.type.shape[axis]:
        return "it resizes the batch"
    return case.cut({0: axis}, (axis,), {"shape": case.part_shape(shape, axis)})


RULES: Final[dict[str, Rule]] = {
    "Resize": _resize,
    "ResizeGrad": _resize,
}
