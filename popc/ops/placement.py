"""Ops for values that pass between chips, stages, and cycles of a pipeline."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer
from popc.ops.infer import operand, same_as_first
from popc.ops.spec import OperandTypes, OpSpec
from popc.ops.views import reshape_view
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]


def _copy(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The operand, on chip ``destination`` rather than ``source``."""
    source, destination = integer(attributes, "source"), integer(attributes, "destination")
    if source == destination:
        raise ModelError(f"copies from chip {source} to itself")
    return (operand(inputs, 0),)


def _stash(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """A row of values, in which operand 1 takes the place of operand 2 modulo the length."""
    del attributes
    row, value = operand(inputs, 0), operand(inputs, 1)
    _require_number(operand(inputs, 2))
    if row.shape[1:] != value.shape or row.dtype is not value.dtype or not row.rank:
        raise ModelError(f"{value} does not go into a row of {row}")
    return (row,)


def _restore(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """From a row of values, the one at the place of operand 1 modulo the length."""
    del attributes
    row = operand(inputs, 0)
    _require_number(operand(inputs, 1))
    if not row.rank:
        raise ModelError(f"{row} is not a row of values")
    return (row.with_shape(row.shape[1:]),)


def _require_number(number: TensorType) -> None:
    if number != TensorType(DType.INT64, ()):
        raise ModelError(f"the number of a value must be an int64, not {number}")


OPS: Final[dict[str, OpSpec]] = {
    # Stands between ops of different stages or phases, so that no pass takes them for one.
    "Boundary": OpSpec(same_as_first, view=reshape_view),
    "IpuCopy": OpSpec(_copy, view=reshape_view),
    "Restore": OpSpec(_restore),
    "Stash": OpSpec(_stash, inplace=(0,)),
}
