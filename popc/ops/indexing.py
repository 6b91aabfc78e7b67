"""Gather, its relatives and its gradient, one-hot."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer
from popc.ops.infer import normal_axis, operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["OPS"]


def _indices(inputs: OperandTypes) -> TensorType:
    indices = operand(inputs, 1)
    if not indices.dtype.is_integer:
        raise ModelError(f"indices must be integers, not {indices.dtype}")
    return indices


def _gather(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source, indices = operand(inputs, 0), _indices(inputs)
    axis = normal_axis(integer(attributes, "axis"), source.rank)
    before, after = source.shape[:axis], source.shape[axis + 1 :]
    return (source.with_shape((*before, *indices.shape, *after)),)


def _gather_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The gradient of a Gather along ``axis``, which has ``size`` elements."""
    grad, indices = operand(inputs, 0), _indices(inputs)
    axis, size = integer(attributes, "axis"), integer(attributes, "size")
    stop = axis + indices.rank
    if axis < 0 or size < 0 or grad.shape[axis:stop] != indices.shape:
        raise ModelError(f"{grad} is not what {indices} gather along axis {axis} of size {size}")
    return (grad.with_shape((*grad.shape[:axis], size, *grad.shape[stop:])),)


def _gather_elements(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source, indices = operand(inputs, 0), _indices(inputs)
    axis = normal_axis(integer(attributes, "axis"), source.rank)
    check_element_indices(source, indices, axis)
    return (source.with_shape(indices.shape),)


def check_element_indices(source: TensorType, indices: TensorType, axis: int) -> None:
    """Indices of single elements: same rank, nowhere beyond the source but along ``axis``."""
    if indices.rank != source.rank:
        raise ModelError(f"indices have rank {indices.rank}, the data rank {source.rank}")
    for other, (wanted, dim) in enumerate(zip(indices.shape, source.shape, strict=True)):
        if other != axis and wanted > dim:
            raise ModelError(f"indices exceed dimension {other} of the data: {wanted} > {dim}")


def _gather_nd(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source, indices = operand(inputs, 0), _indices(inputs)
    batch_dims = integer(attributes, "batch_dims")
    depth = check_index_tuples(source, indices, batch_dims)
    if source.shape[:batch_dims] != indices.shape[:batch_dims]:
        raise ModelError(f"the first {batch_dims} dimensions of data and indices differ")
    return (source.with_shape((*indices.shape[:-1], *source.shape[depth:])),)


def check_index_tuples(source: TensorType, indices: TensorType, batch_dims: int = 0) -> int:
    """The number of dimensions that the tuples in the last axis of ``indices`` name."""
    if indices.rank == 0 or not 0 <= batch_dims < min(indices.rank, source.rank):
        raise ModelError(f"{batch_dims} batch dimensions do not fit {source} and {indices}")
    depth = batch_dims + indices.shape[-1]
    if not batch_dims < depth <= source.rank:
        raise ModelError(f"index tuples of {indices.shape[-1]} do not fit {source}")
    return depth


def _one_hot(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    indices, values = operand(inputs, 0), operand(inputs, 1)
    depth = integer(attributes, "depth")
    axis = normal_axis(integer(attributes, "axis"), indices.rank + 1)
    if values.size != 2:
        raise ModelError(f"needs the off and the on value, not {values}")
    if depth < 0:
        raise ModelError(f"depth must not be negative, but is {depth}")
    return (values.with_shape((*indices.shape[:axis], depth, *indices.shape[axis:])),)


OPS: Final[dict[str, OpSpec]] = {
    "Gather": OpSpec(_gather),
    "GatherElements": OpSpec(_gather_elements),
    "GatherGrad": OpSpec(_gather_grad),
    "GatherND": OpSpec(_gather_nd),
    "OneHot": OpSpec(_one_hot),
}
