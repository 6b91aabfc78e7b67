"""Views, copies, joins, splits: elements move and do not change."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer, integers
from popc.ops.infer import broadcast_shapes, operand, optional_operand, same_as_first
from popc.ops.spec import OperandTypes, OpSpec
from popc.ops.views import (
    expand_view,
    reshape_view,
    slice_view,
    split_view,
    transpose_view,
)
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]


def _reshape(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source = operand(inputs, 0)
    result = source.with_shape(integers(attributes, "shape"))
    if result.size != source.size or min(result.shape, default=0) < 0:
        raise ModelError(f"{source.size} elements cannot take the shape {list(result.shape)}")
    return (result,)


def _transpose(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source, perm = operand(inputs, 0), integers(attributes, "perm")
    if sorted(perm) != list(range(source.rank)):
        raise ModelError(f"{list(perm)} is not a permutation of {source.rank} axes")
    return (source.with_shape(tuple(source.shape[axis] for axis in perm)),)


def _expand(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source, shape = operand(inputs, 0), integers(attributes, "shape")
    if broadcast_shapes([source.shape, shape]) != shape:
        raise ModelError(f"cannot be expanded to {list(shape)}")
    return (source.with_shape(shape),)


def _concat(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    first, axis = operand(inputs, 0), integer(attributes, "axis")
    total = 0
    for index in range(len(inputs)):
        type_ = operand(inputs, index)
        elsewhere = type_.shape[:axis] + type_.shape[axis + 1 :]
        if type_.dtype is not first.dtype or type_.rank != first.rank:
            raise ModelError(f"operand {index} is {type_}, but operand 0 is {first}")
        if elsewhere != first.shape[:axis] + first.shape[axis + 1 :]:
            raise ModelError(f"operand {index} differs from operand 0 beside axis {axis}")
        total += type_.shape[axis]
    return (first.with_shape((*first.shape[:axis], total, *first.shape[axis + 1 :])),)


def _split(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source, axis = operand(inputs, 0), integer(attributes, "axis")
    parts = integers(attributes, "split")
    if min(parts, default=0) < 0 or sum(parts) != source.shape[axis]:
        raise ModelError(
            f"parts {list(parts)} do not add up to dimension {axis}, which is {source.shape[axis]}"
        )
    before, after = source.shape[:axis], source.shape[axis + 1 :]
    return tuple(source.with_shape((*before, part, *after)) for part in parts)


def _slice(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source = operand(inputs, 0)
    starts, sizes = integers(attributes, "starts"), integers(attributes, "sizes")
    windows = zip(source.shape, starts, sizes, integers(attributes, "steps"), strict=True)
    for axis, (dim, start, size, step) in enumerate(windows):
        last = start + (size - 1) * step
        if size < 0 or (size > 0 and not (0 <= start < dim and 0 <= last < dim)):
            raise ModelError(f"the slice leaves dimension {axis}, which is {dim}")
    return (source.with_shape(sizes),)


def _tile(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source, repeats = operand(inputs, 0), integers(attributes, "repeats")
    if len(repeats) != source.rank or min(repeats, default=0) < 0:
        raise ModelError(f"repeats {list(repeats)} do not fit rank {source.rank}")
    dims = zip(source.shape, repeats, strict=True)
    return (source.with_shape(tuple(dim * count for dim, count in dims)),)


def _trilu(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source = operand(inputs, 0)
    if source.rank < 2:
        raise ModelError(f"needs matrices, not rank {source.rank}")
    diagonal = optional_operand(inputs, 1)
    if diagonal is not None and (diagonal.dtype is not DType.INT64 or diagonal.size != 1):
        raise ModelError(f"the diagonal must be one int64 value, not {diagonal}")
    return same_as_first(inputs, attributes)


def _reverse_sequence(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source, lengths = operand(inputs, 0), operand(inputs, 1)
    batch = integer(attributes, "batch_axis")
    if source.rank < 2 or batch not in (0, 1):
        raise ModelError(f"needs a batch axis and a time axis, not rank {source.rank}")
    if lengths.shape != (source.shape[batch],):
        raise ModelError(f"needs one length for each of {source.shape[batch]} sequences")
    return same_as_first(inputs, attributes)


OPS: Final[dict[str, OpSpec]] = {
    "Concat": OpSpec(_concat, strided_output=True),
    "Copy": OpSpec(same_as_first),
    "Expand": OpSpec(_expand, view=expand_view),
    "Reshape": OpSpec(_reshape, view=reshape_view, strided_output=True),
    "ReverseSequence": OpSpec(_reverse_sequence),
    "Slice": OpSpec(_slice, view=slice_view),
    "Split": OpSpec(_split, view=split_view),
    "Tile": OpSpec(_tile),
    "Transpose": OpSpec(_transpose, view=transpose_view),
    "Trilu": OpSpec(_trilu),
}
