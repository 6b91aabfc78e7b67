"""Resampling along axes, and its gradient."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integers
from popc.ops.infer import check_choice, operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType
from popc_runtime.format.limits import MAX_RESIZED

__all__ = ["OPS"]

_MODES: Final = ("nearest", "linear", "cubic")
_TRANSFORMATIONS: Final = (
    "align_corners",
    "asymmetric",
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)
_NEAREST_MODES: Final = ("ceil", "floor", "round_prefer_ceil", "round_prefer_floor")


def _infer_resize(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The size of every axis is in ``shape``; modes are those of ONNX Resize-19 and before."""
    x = operand(inputs, 0)
    shape = integers(attributes, "shape")
    check_choice(attributes, "mode", _MODES)
    check_choice(attributes, "coordinate_transformation_mode", _TRANSFORMATIONS)
    if attributes["mode"] == "nearest":
        check_choice(attributes, "nearest_mode", _NEAREST_MODES)
    elif x.dtype is DType.BOOL:
        raise ModelError(f"mode {attributes['mode']!r} cannot interpolate bool")
    if len(shape) != x.rank:
        raise ModelError(f"{len(shape)} sizes or scales for {x.rank} dimensions")
    for before, after in zip(x.shape, shape, strict=True):
        if after < 0 or (before == 0 and after > 0):
            raise ModelError(f"cannot resize {list(x.shape)} to {list(shape)}")
        if before != after and max(before, after) > MAX_RESIZED:
            raise ModelError(
                f"cannot resize an axis of {before:,} elements to {after:,}: "
                f"{MAX_RESIZED:,} are possible"
            )
    return (x.with_shape(shape),)


def _infer_resize_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """``shape`` is what the Resize was given; all other attributes are those of the Resize."""
    grad = operand(inputs, 0)
    source = grad.with_shape(integers(attributes, "shape"))
    _infer_resize((source,), {**attributes, "shape": grad.shape})
    return (source,)


OPS: Final[dict[str, OpSpec]] = {
    "Resize": OpSpec(_infer_resize, strided_output=True),
    "ResizeGrad": OpSpec(_infer_resize_grad),
}
