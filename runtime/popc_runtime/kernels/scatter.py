"""Scatter: a copy of the data with some elements replaced or combined.

Every kernel first brings the data into the output (nothing to do if the output took over the
data's memory) and then writes at flat positions.  Where indices repeat, the last update wins, and
reductions see every update.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.copying import copy_calls, is_same_memory
from popc_runtime.kernels.core.indices import element_positions, row_numbers
from popc_runtime.kernels.parts.accumulate import combine_rows

__all__ = ["KERNELS"]

_COMBINE: Final[dict[str, np.ufunc]] = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def _start(binding: Binding) -> tuple[Call, ...]:
    data, out = binding.input(0), binding.output()
    return () if is_same_memory(data, out) else copy_calls(out, data)


def _scatter_elements(binding: Binding) -> Calls:
    out, updates = binding.output(), binding.input(2)
    axis = binding.integer("axis", 0)
    positions, prepare = element_positions(binding, 1, out.shape, axis)
    write = _write(binding, out.reshape(-1), positions.reshape(-1), updates)
    return (*_start(binding), *prepare, *write)


def _scatter_nd(binding: Binding) -> Calls:
    out, updates = binding.output(), binding.input(2)
    depth = binding.input(1).shape[-1]
    dims, inner = out.shape[:depth], prod(out.shape[depth:])
    rows, prepare = row_numbers(binding, 1, dims)
    start, table = _start(binding), out.reshape(prod(dims), inner)
    reduction = binding.text("reduction", "none")
    if reduction == "none":
        return (*start, *prepare, *_write_rows(binding, table, rows, updates))
    flat, pack = _flat(binding, updates)
    values = flat.reshape(rows.size, inner)
    combine = combine_rows(binding.scratch, _COMBINE[reduction], table, rows, values)
    return (*start, *prepare, *pack, *combine)


def _write(binding: Binding, flat: Array, positions: Array, updates: Array) -> tuple[Call, ...]:
    """Calls that put ``updates`` (any shape) at flat positions, or combine them."""
    if updates.size == 0:
        return ()
    values, pack = _flat(binding, updates)
    reduction = binding.text("reduction", "none")
    if reduction == "none":
        return (*pack, partial(np.put, flat, positions, values, "clip"))
    return (*pack, partial(_COMBINE[reduction].at, flat, positions, values))


def _flat(binding: Binding, updates: Array) -> tuple[Array, tuple[Call, ...]]:
    if updates.flags.c_contiguous:
        return updates.reshape(-1), ()
    packed = binding.scratch.take(updates.shape, updates.dtype)
    return packed.reshape(-1), copy_calls(packed, updates)


def _write_rows(binding: Binding, table: Array, rows: Array, updates: Array) -> tuple[Call, ...]:
    """Whole rows; a constant run of evenly spaced rows is an ordinary strided copy."""
    if updates.size == 0:
        return ()
    flat, pack = _flat(binding, updates)
    values = flat.reshape(rows.size, table.shape[1])
    window = _even_run(rows) if binding.is_constant(1) else None
    if window is not None:
        return (*pack, *copy_calls(table[window], values))
    return (*pack, partial(table.__setitem__, rows, values))


def _even_run(rows: Array) -> slice | None:
    """The slice that names ``rows`` in order, if there is one."""
    step = int(rows[1] - rows[0]) if rows.size > 1 else 1
    if step <= 0 or bool((np.diff(rows) != step).any()):
        return None
    return slice(int(rows[0]), int(rows[-1]) + 1, step)


def _tensor_scatter(binding: Binding) -> Calls:
    """ONNX TensorScatter-24: per batch row, write a run of the sequence axis from an index on."""
    axis = binding.integer("axis", -2) % binding.output().ndim
    cache = np.moveaxis(binding.output(), axis, 1)
    update = np.moveaxis(binding.input(1), axis, 1)
    batch, length, count = cache.shape[0], cache.shape[1], update.shape[1]
    starts = binding.optional(2)
    first = np.zeros(batch, np.int64) if starts is None else starts
    write = _circular_write if binding.text("mode", "linear") == "circular" else _linear_write
    return (*_start(binding), partial(write, cache, update, first, np.arange(count), length))


def _circular_write(cache: Array, update: Array, first: Array, offsets: Array, length: int) -> None:
    steps = (first[:, None] + offsets) % length
    cache[np.arange(len(first))[:, None], steps] = update


def _linear_write(cache: Array, update: Array, first: Array, offsets: Array, length: int) -> None:
    if first.size and (first.min() < 0 or first.max() + len(offsets) > length):
        raise IndexError(
            f"{len(offsets)} steps at write indices {first.tolist()} do not fit into {length} steps"
        )
    cache[np.arange(len(first))[:, None], first[:, None] + offsets] = update


KERNELS: Final[dict[str, Kernel]] = {
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
}
