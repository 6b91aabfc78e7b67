"""Gradients of normalisation.

The gradients of scales and biases are in the type in which sums are computed: float64 for float64,
else float32.
"""

from __future__ import annotations

from typing import Final

from popc.ir import Shape, TensorType
from popc.ir.attributes import integer
from popc.ops.infer import like_gradient, normal_axis, operand, optional_operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]


def _summed(x: TensorType, shape: Shape) -> TensorType:
    return TensorType(DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32, shape)


def _check_vector(inputs: OperandTypes, index: int, shape: Shape) -> None:
    given = operand(inputs, index)
    if given.shape != shape:
        raise ModelError(f"input {index} must have shape {list(shape)}, not {list(given.shape)}")


def _batch(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """dY, X, scale, mean, variance: the gradients of X, scale and bias.

    Mean and variance depend on X if attribute ``training_mode`` is 1.
    """
    (x,) = like_gradient(inputs[:2], attributes)
    for index in range(2, 5):
        _check_vector(inputs, index, x.shape[1:2])
    integer(attributes, "training_mode")
    vector = _summed(x, x.shape[1:2])
    return x, vector, vector


def _group(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """dY, X, scale: the gradients of X, scale and bias."""
    (x,) = like_gradient(inputs[:2], attributes)
    _check_vector(inputs, 2, x.shape[1:2])
    groups = integer(attributes, "num_groups", max(x.shape[1], 1))
    if groups < 1 or x.shape[1] % groups:
        raise ModelError(f"{x.shape[1]} channels cannot be divided into {groups} groups")
    vector = _summed(x, x.shape[1:2])
    return x, vector, vector


def _layer(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """dY, X, [scale], [mean], [1 / deviation]: the gradients of X, scale and bias.

    The scale has the shape of a row.  Mean and deviation are computed again if they are absent.
    """
    (x,) = like_gradient(inputs[:2], attributes)
    axis = normal_axis(integer(attributes, "axis"), x.rank)
    row, kept = x.shape[axis:], x.shape[:axis] + (1,) * (x.rank - axis)
    for index, shape in ((2, row), (3, kept), (4, kept)):
        if optional_operand(inputs, index) is not None:
            _check_vector(inputs, index, shape)
    vector = _summed(x, row)
    return x, vector, vector


def _rms(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """dY, X, [scale]: the gradients of X and scale."""
    return _layer(inputs[:3], attributes)[:2]


OPS: Final[dict[str, OpSpec]] = {
    "BatchNormalizationGrad": OpSpec(_batch, inplace=(0,), strided_input=False),
    "GroupNormalizationGrad": OpSpec(_group, inplace=(0,), strided_input=False),
    "InstanceNormalizationGrad": OpSpec(_group, inplace=(0,), strided_input=False),
    "LRNGrad": OpSpec(like_gradient, strided_input=False),
    "LayerNormalizationGrad": OpSpec(_layer, inplace=(0,), strided_input=False),
    "RMSNormalizationGrad": OpSpec(_rms, inplace=(0,), strided_input=False),
}
