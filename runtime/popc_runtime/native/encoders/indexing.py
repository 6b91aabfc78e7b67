"""Rows that are taken by their numbers."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import contiguous_copy, packed, tensors
from popc_runtime.native.encoders.dynamic import one_row
from popc_runtime.native.record import MAX_RANK, Encoder, Record

__all__ = ["ENCODERS"]

_FEW: Final = 2  # copies of the result that a copy of the operand may cost


def _gather(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, indices {axis}."""
    del numbers
    x, indices, out = binding.input(0), binding.input(1), binding.output()
    if (
        out.size == 0
        or x.size == 0
        or x.ndim >= MAX_RANK
        or indices.dtype not in (DType.INT32, DType.INT64)
    ):
        return None
    axis = binding.integer("axis", 0) % x.ndim
    if indices.size == 1 and not x.is_contiguous:
        return one_row(binding, axis)
    before: tuple[Record, ...] = ()
    if not x.is_contiguous and binding.is_constant(0):
        x = contiguous_copy(x)
    elif x.size <= _FEW * out.size:
        x, before = packed(binding, 0)
    if not x.is_contiguous:
        return None
    places, more = packed(binding, 1)
    words = (*tensors(x, places, out), axis)
    return Record("Gather", words, (x, places, out), before=(*before, *more))


ENCODERS: Final[dict[str, Encoder]] = {"Gather": _gather}
