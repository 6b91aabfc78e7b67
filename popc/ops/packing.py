"""Runs of rows copied from one tensor into another: sequences packed and unpacked."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer
from popc.ops.infer import FLOATS, one_dtype, operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["OPS"]


def _check_runs(inputs: OperandTypes, first: int) -> None:
    """Operands ``first`` on: how many rows each run has, where it is read, where written."""
    counts = operand(inputs, first)
    for index in range(first, first + 3):
        type_ = operand(inputs, index)
        if not type_.dtype.is_integer or type_.rank != 1 or type_.shape != counts.shape:
            raise ModelError(
                f"input {index} must be a vector of {counts.size} integers, not {type_}"
            )


def _sequence_slice(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands source, destination, counts, source offsets, destination offsets.

    ``zero_unused``: rows of the destination that no run covers become zero.
    """
    integer(attributes, "zero_unused")
    source, destination = operand(inputs, 0), operand(inputs, 1)
    _check_runs(inputs, 2)
    if min(source.rank, destination.rank) < 1 or source.dtype is not destination.dtype:
        raise ModelError(f"rows of {source} cannot be copied into {destination}")
    if source.shape[1:] != destination.shape[1:]:
        raise ModelError(f"rows of {source} do not have the shape of rows of {destination}")
    return (destination,)


def _sequence_slice_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands as of SequenceSlice without the source, which had ``rows`` rows."""
    grad, rows = operand(inputs, 0), integer(attributes, "rows")
    one_dtype([grad], FLOATS)
    _check_runs(inputs, 1)
    if grad.rank < 1 or rows < 0:
        raise ModelError(f"{rows} rows do not fit {grad}")
    return (grad.with_shape((rows, *grad.shape[1:])),)


OPS: Final[dict[str, OpSpec]] = {
    "SequenceSlice": OpSpec(_sequence_slice, inplace=(1,)),
    "SequenceSliceGrad": OpSpec(_sequence_slice_grad),
}
