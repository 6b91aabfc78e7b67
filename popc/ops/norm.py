"""Normalisation by statistics of the elements' group."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer
from popc.ops.infer import attribute_dtype, broadcast_shapes, normal_axis, operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]


def _batch(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    del attributes
    return (_with_channels(inputs, range(1, 5)),)


def _batch_training(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """X, scale, bias: X normalised by its own statistics, and those, its mean and variance."""
    del attributes
    x = _with_channels(inputs, range(1, 3))
    wide = DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32
    statistics = TensorType(wide, x.shape[1:2])
    return x, statistics, statistics


def _instance(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    del attributes
    return (_with_channels(inputs, range(1, 3)),)


def _group(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    x = _with_channels(inputs, range(1, 3))
    groups = integer(attributes, "num_groups")
    if groups < 1 or x.shape[1] % groups:
        raise ModelError(f"{x.shape[1]} channels cannot be divided into {groups} groups")
    return (x,)


def _with_channels(inputs: OperandTypes, parameters: range) -> TensorType:
    """Type of the operand [N, C, ...]; each of ``parameters`` must be [C]."""
    x = operand(inputs, 0)
    if x.rank < 2:
        raise ModelError(f"an operand with channels has at least 2 dimensions, not {x.rank}")
    for index in parameters:
        shape = operand(inputs, index).shape
        if shape != (x.shape[1],):
            raise ModelError(f"input {index} must have shape [{x.shape[1]}], not {list(shape)}")
    return x


def _lrn(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    size = integer(attributes, "size")
    if size < 1:
        raise ModelError(f"size must be positive, not {size}")
    return (_with_channels(inputs, range(0)),)


def _layer(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The normalised elements, and the mean and 1 / deviation of each row (ONNX stash_type)."""
    x = _rms(inputs, attributes)[0]
    axis = normal_axis(integer(attributes, "axis"), x.rank)
    kept = x.shape[:axis] + (1,) * (x.rank - axis)
    statistics = TensorType(attribute_dtype(attributes, "stash_type"), kept)
    return x, statistics, statistics


def _rms(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    x = operand(inputs, 0)
    normal_axis(integer(attributes, "axis"), x.rank)
    for index, type_ in enumerate(inputs):
        if type_ is not None and broadcast_shapes([x.shape, type_.shape]) != x.shape:
            raise ModelError(
                f"input {index} of shape {list(type_.shape)} does not broadcast to {list(x.shape)}"
            )
    return (x,)


OPS: Final[dict[str, OpSpec]] = {
    "BatchNormalization": OpSpec(_batch, inplace=(0,)),
    "BatchNormalizationTraining": OpSpec(_batch_training, inplace=(0,), strided_input=False),
    "GroupNormalization": OpSpec(_group, inplace=(0,), strided_input=False),
    "InstanceNormalization": OpSpec(_instance, inplace=(0,), strided_input=False),
    "LRN": OpSpec(_lrn, strided_input=False),
    "LayerNormalization": OpSpec(_layer, inplace=(0,), strided_input=False),
    "RMSNormalization": OpSpec(_rms, inplace=(0,), strided_input=False),
}
