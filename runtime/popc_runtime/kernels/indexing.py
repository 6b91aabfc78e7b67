"""Gather and its relatives, one-hot: elements selected by index."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, MoveKernel
from popc_runtime.kernels.core.copying import as_contiguous, copy_calls
from popc_runtime.kernels.core.indices import (
    check_bounds,
    element_positions,
    normal_indices,
    row_numbers,
)

__all__ = ["KERNELS", "gather"]

# numpy checks the bounds itself, but then goes through a copy of the output: cheaper than a check
# of our own only while the output is small.
_SMALL_BYTES: Final = 1 << 14


def gather(binding: Binding) -> Calls:
    """X[indices] along ``axis``."""
    x, indices, out = binding.input(0), binding.input(1), binding.output()
    axis = binding.integer("axis", 0)
    if out.size == 0:
        return partial(check_bounds, indices, x.shape[axis])
    if indices.size == 1:
        return _gather_one(binding, x, out, axis)
    if not x.flags.c_contiguous and not binding.is_constant(0):
        return _gather_strided(binding, x, axis)
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    rows = np.ascontiguousarray(x).reshape(prod(before), x.shape[axis], prod(after))
    target = out.reshape(prod(before), indices.size, prod(after))
    if binding.is_constant(1):
        normal, _ = normal_indices(binding, 1, x.shape[axis])
        return partial(np.take, rows, normal.reshape(-1), 1, target, "clip")
    packed, pack = as_contiguous(binding, 1)
    if out.nbytes <= _SMALL_BYTES:
        return (*pack, partial(np.take, rows, packed.reshape(-1), 1, target))
    # "wrap" adds the size to a negative index; the check before it leaves no other use for it.
    return (
        *pack,
        partial(check_bounds, packed, x.shape[axis]),
        partial(np.take, rows, packed.reshape(-1), 1, target, "wrap"),
    )


def _gather_one(binding: Binding, x: Array, out: Array, axis: int) -> Calls:
    """A single index selects a slice: the form that loops and heads of networks use."""
    slices = np.moveaxis(x, axis, 0)
    target = out.reshape(slices.shape[1:])
    index = binding.input(1).reshape(())
    if binding.is_constant(1):
        return copy_calls(target, slices[int(index), ...])

    def call() -> None:
        np.copyto(target, slices[int(index), ...])

    return call


def _gather_strided(binding: Binding, x: Array, axis: int) -> Calls:
    """`numpy.take` would copy all of a strided operand; indexing reads only what is wanted."""
    out = binding.output()
    wanted: tuple[slice | Array, ...] = (*(slice(None),) * axis, binding.input(1))

    def call() -> None:
        np.copyto(out, x[wanted])

    return call


def _gather_elements(binding: Binding) -> Calls:
    x, before = as_contiguous(binding, 0)
    positions, prepare = element_positions(binding, 1, x.shape, binding.integer("axis", 0))
    return (*before, *prepare, *_take(x.reshape(-1), positions, binding.output()))


def _gather_nd(binding: Binding) -> Calls:
    x, before = as_contiguous(binding, 0)
    batch_dims = binding.integer("batch_dims", 0)
    depth = batch_dims + binding.input(1).shape[-1]
    rows, prepare = row_numbers(binding, 1, x.shape[:depth], batch_dims)
    inner = prod(x.shape[depth:])
    table = x.reshape(prod(x.shape[:depth]), inner)
    target = binding.output().reshape(rows.size, inner)
    return (*before, *prepare, *_take(table, rows, target))


def _take(table: Array, rows: Array, out: Array) -> tuple[Call, ...]:
    """Rows of ``table``; the numbers have been checked, so "clip" only spares a second check."""
    if out.size == 0:
        return ()
    return (partial(np.take, table, rows, 0, out, "clip"),)


def _one_hot(binding: Binding) -> Calls:
    """ONNX OneHot-11: an index outside [-depth, depth) gives a row without the on value."""
    out = binding.output()
    indices, pack = as_contiguous(binding, 0)
    off, on = np.split(binding.input(1).reshape(2), 2)  # not items, which would be copies
    axis, depth = binding.integer("axis", -1) % out.ndim, binding.integer("depth")
    before, after = out.shape[:axis], out.shape[axis + 1 :]
    outer = np.arange(prod(before))[:, None] * (depth * prod(after))
    base = outer + np.arange(prod(after))[None, :]
    index = indices.reshape(base.shape)
    flat = out.reshape(-1)

    def call() -> None:
        number = index.astype(np.int64)
        number[number < 0] += depth
        hit = (number >= 0) & (number < depth)
        flat[(base + number * prod(after))[hit]] = on

    return (*pack, partial(np.copyto, out, off), call)


KERNELS: Final[dict[str, Kernel]] = {
    "Gather": MoveKernel(gather),
    "GatherElements": MoveKernel(_gather_elements),
    "GatherND": MoveKernel(_gather_nd),
    "OneHot": MoveKernel(_one_hot),
}
