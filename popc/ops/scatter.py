"""Scatter: a copy of input 0 with some elements replaced or combined."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer
from popc.ops.indexing import check_element_indices, check_index_tuples
from popc.ops.infer import check_choice, normal_axis, operand, optional_operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]

_REDUCTIONS: Final = ("none", "add", "mul", "min", "max")


def _check_updates(inputs: OperandTypes, attributes: Attributes, shape: tuple[int, ...]) -> None:
    source, indices, updates = operand(inputs, 0), operand(inputs, 1), operand(inputs, 2)
    check_choice(attributes, "reduction", _REDUCTIONS)
    if not indices.dtype.is_integer:
        raise ModelError(f"indices must be integers, not {indices.dtype}")
    if updates != source.with_shape(shape):
        raise ModelError(f"updates must be {source.with_shape(shape)}, not {updates}")


def _scatter_elements(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source, indices = operand(inputs, 0), operand(inputs, 1)
    axis = normal_axis(integer(attributes, "axis"), source.rank)
    check_element_indices(source, indices, axis)
    _check_updates(inputs, attributes, indices.shape)
    return (source,)


def _scatter_nd(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source, indices = operand(inputs, 0), operand(inputs, 1)
    depth = check_index_tuples(source, indices)
    _check_updates(inputs, attributes, (*indices.shape[:-1], *source.shape[depth:]))
    return (source,)


def _tensor_scatter(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    cache, update = operand(inputs, 0), operand(inputs, 1)
    check_choice(attributes, "mode", ("linear", "circular"))
    axis = normal_axis(integer(attributes, "axis"), cache.rank)
    if axis == 0:
        raise ModelError("axis 0 is the batch and cannot be written along")
    steps = update.shape[axis] if update.rank == cache.rank else -1
    if update != cache.with_shape((*cache.shape[:axis], steps, *cache.shape[axis + 1 :])):
        raise ModelError(f"the update {update} does not fit the cache {cache} along axis {axis}")
    if steps > cache.shape[axis]:
        raise ModelError(f"{steps} steps do not fit a cache of {cache.shape[axis]}")
    starts = optional_operand(inputs, 2)
    if starts is not None and starts != TensorType(DType.INT64, (cache.shape[0],)):
        raise ModelError(f"needs one int64 write index per batch row, not {starts}")
    return (cache,)


OPS: Final[dict[str, OpSpec]] = {
    "ScatterElements": OpSpec(_scatter_elements, inplace=(0,)),
    "ScatterND": OpSpec(_scatter_nd, inplace=(0,)),
    "TensorScatter": OpSpec(_tensor_scatter, inplace=(0,)),
}
