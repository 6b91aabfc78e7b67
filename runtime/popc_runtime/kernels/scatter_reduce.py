"""Elements combined by the index that each has along an axis."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.copying import as_contiguous, copy_calls, is_same_memory
from popc_runtime.kernels.core.indices import element_positions
from popc_runtime.kernels.parts.accumulate import clear, combine_rows
from popc_runtime.kernels.parts.epilogue import in_float32

__all__ = ["KERNELS"]

_COMBINE: Final[dict[str, np.ufunc]] = {
    "sum": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def _scatter_reduce(binding: Binding) -> Calls:
    """Rows are what lies behind the axis, or single elements if each has an index of its own."""
    out, indices = binding.output(), binding.input(1)
    axis = binding.integer("axis") % out.ndim
    dims = out.shape if indices.ndim == out.ndim else out.shape[: axis + 1]
    positions, prepare = element_positions(binding, 1, dims, axis)
    values, pack = as_contiguous(binding, 0)
    if values.size == 0:
        return _start(binding)
    rows, width = positions.reshape(-1), prod(out.shape[len(dims) :])
    table, values = out.reshape(prod(dims), width), values.reshape(rows.size, width)
    write = _write(binding, table, rows, values)
    return (*_start(binding), *prepare, *pack, *write)


def _start(binding: Binding) -> tuple[Call, ...]:
    """The initial values; without them, what the places have that no value comes to."""
    out, initial = binding.output(), binding.optional(2)
    if initial is not None:
        return () if is_same_memory(initial, out) else copy_calls(out, initial)
    return (partial(out.fill, 1) if binding.text("reduction") == "mul" else clear(out),)


def _write(binding: Binding, table: Array, rows: Array, values: Array) -> tuple[Call, ...]:
    """Without a reduction, the last row that names a place stays.

    So it does at first where the extremum is one of the values only: combined with the others,
    it becomes their extremum.
    """
    reduction = binding.text("reduction")
    put = partial(table.__setitem__, rows, values)
    if reduction == "none":
        return (put,)
    combine = combine_rows(binding.scratch, _COMBINE[reduction], table, rows, values)
    only_values = binding.optional(2) is None and reduction in ("min", "max")
    return (put, *combine) if only_values else combine


KERNELS: Final[dict[str, Kernel]] = {"ScatterReduce": in_float32(_scatter_reduce)}
