"""Sampling at positions, and its gradients."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integers
from popc.ops.infer import check_choice, operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["OPS"]


def _infer_grid_sample(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """X [N, C, d1, ..., dr] and grid [N, o1, ..., or, r] give [N, C, o1, ..., or]."""
    x, grid = operand(inputs, 0), operand(inputs, 1)
    check_choice(attributes, "mode", ("nearest", "linear", "cubic"))
    check_choice(attributes, "padding_mode", ("zeros", "border", "reflection"))
    spatial = x.rank - 2
    if spatial < 1 or grid.rank != x.rank or grid.shape[-1] != spatial:
        raise ModelError(f"the grid of {x} must have the shape [N, ..., {max(spatial, 1)}]")
    if grid.shape[0] != x.shape[0]:
        raise ModelError(f"batch sizes {x.shape[0]} and {grid.shape[0]} differ")
    result = x.with_shape((*x.shape[:2], *grid.shape[1:-1]))
    if result.size and 0 in x.shape:
        raise ModelError(f"there is nothing to sample in {x}")
    return (result,)


def _infer_sampled_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The gradient of a GridSample and its grid give that of X, whose sizes are in ``shape``."""
    grad, grid = operand(inputs, 0), operand(inputs, 1)
    x = grad.with_shape((*grad.shape[:2], *integers(attributes, "shape")))
    _check_gradient(grad, x, grid, attributes)
    return (x,)


def _infer_grid_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The gradient of a GridSample, its X and its grid give that of the grid."""
    grad, x, grid = (operand(inputs, index) for index in range(3))
    check_choice(attributes, "mode", ("linear", "cubic"))
    _check_gradient(grad, x, grid, attributes)
    return (grid,)


def _check_gradient(
    grad: TensorType, x: TensorType, grid: TensorType, attributes: Attributes
) -> None:
    if _infer_grid_sample((x, grid), attributes) != (grad,):
        raise ModelError(f"{grad} is not what {x} gives at {grid}")


OPS: Final[dict[str, OpSpec]] = {
    "GridSample": OpSpec(_infer_grid_sample),
    "GridSampleGrad": OpSpec(_infer_sampled_grad),
    "GridSampleGridGrad": OpSpec(_infer_grid_grad),
}
