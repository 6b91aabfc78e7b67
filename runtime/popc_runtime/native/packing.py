"""Operands as kernels want them that take nothing but contiguous memory."""

from __future__ import annotations

from popc_runtime.format.dtypes import Array, DType
from popc_runtime.kernels.binding import Binding
from popc_runtime.native.record import MAX_RANK, Record, tensor_words

__all__ = ["is_plain", "move_record", "packed", "tensors"]

_HALVES = (DType.FLOAT16, DType.BFLOAT16)


def is_plain(binding: Binding) -> bool:
    """Whether the operands are of few dimensions, and numbers that the processor computes with."""
    arrays = [one for one in (*binding.inputs, *binding.outputs) if one is not None]
    halves = any(one in _HALVES for one in (*binding.input_dtypes, *binding.output_dtypes))
    kinds = all(one.dtype.kind in "fiub" and one.itemsize <= 8 for one in arrays)
    return not halves and kinds and all(one.ndim < MAX_RANK for one in arrays)


def move_record(to: Array, source: Array) -> Record:
    """A copy between arrays of one shape and element type, which has elements."""
    return Record("Move", (*tensor_words(source), *tensor_words(to)), (to, source))


def packed(binding: Binding, index: int) -> tuple[Array, tuple[Record, ...]]:
    """A required operand, contiguous, and what runs before it is."""
    array = binding.input(index)
    if array.flags.c_contiguous or array.size == 0:
        return array, ()
    copy = binding.scratch.take(array.shape, array.dtype)
    return copy, (move_record(copy, array),)


def tensors(*arrays: Array | None) -> tuple[int, ...]:
    """The words of operands, one after another."""
    return tuple(word for array in arrays for word in tensor_words(array))
