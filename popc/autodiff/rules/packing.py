"""Gradients of runs of rows copied from one tensor into another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Tensor
from popc.ir.attributes import integer

__all__ = ["GRADIENTS"]


def _sequence_slice(b: Backward) -> Sequence[Tensor | None]:
    """Rows that were read add up; rows that were written over count no longer."""
    g, source = b.grad(), b.input(0)
    runs = [b.input(index) for index in range(2, 5)]
    first = second = None
    if b.wants(0):
        first = b.emit("SequenceSliceGrad", [g, *runs], {"rows": source.type.shape[0]})
    if b.wants(1) and not integer(b.attributes, "zero_unused"):
        second = b.emit("SequenceSlice", [b.zeros(source.type), g, *runs], b.attributes)
    return [first, second]


GRADIENTS: Final[dict[str, GradientRule]] = {"SequenceSlice": _sequence_slice}
