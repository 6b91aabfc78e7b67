"""Pooling of regions of interest, and its gradients."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer, integers
from popc.ops.infer import check_choice, check_rank, operand, optional_operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["OPS"]


def _infer_roi_align(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """X [N, C, H, W], regions [R, 4] and their batch indices [R] give [R, C, height, width]."""
    x, rois, batches = (operand(inputs, index) for index in range(3))
    check_choice(attributes, "mode", ("avg", "max"))
    check_choice(attributes, "coordinate_transformation_mode", ("half_pixel", "output_half_pixel"))
    _check_regions(x, rois, 4)
    if batches.shape != rois.shape[:1]:
        raise ModelError(f"{rois.shape[0]} regions need as many batch indices, not {batches}")
    pooled = (integer(attributes, "output_height"), integer(attributes, "output_width"))
    return (_pooled(x, rois, pooled),)


def _infer_max_roi_pool(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """X [N, C, H, W] and regions [R, 5] (batch, x1, y1, x2, y2) give [R, C, height, width]."""
    x, rois = operand(inputs, 0), operand(inputs, 1)
    _check_regions(x, rois, 5)
    pooled = integers(attributes, "pooled_shape")
    if len(pooled) != 2:
        raise ModelError(f"pooled_shape must be [height, width], not {list(pooled)}")
    return (_pooled(x, rois, pooled),)


def _check_regions(x: TensorType, rois: TensorType, columns: int) -> None:
    check_rank(x, 4, "the feature map")
    if rois.rank != 2 or rois.shape[1] != columns:
        raise ModelError(f"regions must have the shape [R, {columns}], not {list(rois.shape)}")


def _pooled(x: TensorType, rois: TensorType, pooled: tuple[int, ...]) -> TensorType:
    if min(pooled) < 1:
        raise ModelError(f"the pooled size {list(pooled)} must be positive")
    result = x.with_shape((rois.shape[0], x.shape[1], *pooled))
    if result.size and x.size == 0:
        raise ModelError(f"there is nothing to pool in {x}")
    return result


def _infer_roi_align_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Gradient, regions, batch indices; X of ``shape`` only for maxima."""
    grad, rois, batches = (operand(inputs, index) for index in range(3))
    x, given = grad.with_shape(integers(attributes, "shape")), optional_operand(inputs, 3)
    if given != (x if attributes["mode"] == "max" else None):
        raise ModelError(f"X is {given}, for mode {attributes['mode']!r}")
    _check_gradient(grad, _infer_roi_align((x, rois, batches), attributes))
    return (x,)


def _infer_max_roi_pool_grad(
    inputs: OperandTypes, attributes: Attributes
) -> tuple[TensorType, ...]:
    """Gradient, regions and X."""
    grad, rois, x = (operand(inputs, index) for index in range(3))
    _check_gradient(grad, _infer_max_roi_pool((x, rois), attributes))
    return (x,)


def _check_gradient(grad: TensorType, results: tuple[TensorType, ...]) -> None:
    if results != (grad,):
        raise ModelError(f"the gradient of {results[0]} cannot be {grad}")


OPS: Final[dict[str, OpSpec]] = {
    "MaxRoiPool": OpSpec(_infer_max_roi_pool),
    "MaxRoiPoolGrad": OpSpec(_infer_max_roi_pool_grad),
    "RoiAlign": OpSpec(_infer_roi_align),
    "RoiAlignGrad": OpSpec(_infer_roi_align_grad),
}
