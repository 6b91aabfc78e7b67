"""Elements that move, and those that are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc_runtime.format.dtypes import DType
from popc_runtime.native.binding import Binding
from popc_runtime.native.packing import move_record, tensors
from popc_runtime.native.record import MAX_RANK, Encoder, Record
from popc_runtime.native.views import is_same_memory

__all__ = ["ENCODERS"]


def _triangle(binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    """X, number of the diagonal? {upper}: copied, then cleared on one side of it."""
    del numbers
    x, out, diagonal = binding.input(0), binding.output(), binding.optional(1)
    if x.size == 0 or x.ndim >= MAX_RANK or out.itemsize > 8 or not out.is_contiguous:
        return None
    if diagonal is not None and diagonal.dtype is not DType.INT64:
        return None
    before = () if is_same_memory(x, out) else (move_record(out, x),)
    words = (*tensors(out, diagonal), binding.integer("upper", 1))
    return Record("ClearTriangle", words, (x, out), before=before)


ENCODERS: Final[dict[str, Encoder]] = {"Trilu": _triangle}
