"""Rows that are taken by their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc_runtime.format.dtypes import DType
from popc_runtime.native.binding import Binding
from popc_runtime.native.record import Encoder, Record, tensor_words

__all__ = ["ENCODERS"]


def _gather(binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    """X, indices {axis}."""
    del numbers
    x, indices, out = binding.input(0), binding.input(1), binding.output()
    plain = x.is_contiguous and indices.is_contiguous
    if not plain or out.size == 0 or indices.dtype not in (DType.INT32, DType.INT64):
        return None
    axis = binding.integer("axis", 0) % x.ndim
    return Record("Gather", (*tensor_words(x), *tensor_words(indices), *tensor_words(out), axis))


ENCODERS: Final[dict[str, Encoder]] = {"Gather": _gather}
