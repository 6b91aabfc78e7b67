"""Index operands: bounds, negative values, positions in flat memory.

ONNX lets an index count from the end and makes anything else beyond the dimension an error.  So do
these helpers: an IndexError, which the device reports with the name of the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call

__all__ = ["check_bounds", "element_positions", "normal_indices", "row_numbers", "row_strides"]


def check_bounds(indices: Array, size: int) -> None:
    """Raise IndexError unless -size <= index < size everywhere."""
    if indices.size and (indices.min() < -size or indices.max() >= size):
        first = indices[(indices < -size) | (indices >= size)].flat[0]
        raise IndexError(f"index {first} is out of range for a dimension of size {size}")


def normal_indices(
    binding: Binding, operand: int, sizes: int | tuple[int, ...]
) -> tuple[Array, tuple[Call, ...]]:
    """Indices counted from the front (int64), and the calls that compute them before each use.

    ``sizes`` is one dimension for all indices, or one per entry of their last axis.  Constant
    indices are done at once and need no calls.
    """
    given = binding.input(operand)
    limits = np.asarray(sizes, np.int64)
    if binding.is_constant(operand):
        normal, negative = np.empty(given.shape, np.int64), np.empty(given.shape, bool)
        _normalise(given, limits, negative, normal)
        return normal, ()
    normal = binding.scratch.take(given.shape, np.int64)
    negative = binding.scratch.take(given.shape, np.bool_)
    return normal, (partial(_normalise, given, limits, negative, normal),)


def _normalise(given: Array, limits: Array, negative: Array, normal: Array) -> None:
    np.less(given, 0, out=negative)
    np.multiply(negative, limits, out=normal)
    np.add(normal, given, out=normal)
    # As unsigned numbers, what is still negative is larger than any limit.
    np.greater_equal(normal.view(np.uint64), limits.view(np.uint64), out=negative)
    if negative.any():
        raise IndexError(
            f"index {given[negative].flat[0]} is out of range for dimensions {limits.tolist()}"
        )


def row_strides(dims: Sequence[int]) -> Array:
    """Distance, in elements, between neighbours along each of ``dims`` (C order)."""
    strides = [1]
    for dim in reversed(dims[1:]):
        strides.append(strides[-1] * dim)
    return np.array(strides[::-1][: len(dims)], np.int64)


def element_positions(
    binding: Binding, operand: int, shape: tuple[int, ...], axis: int
) -> tuple[Array, tuple[Call, ...]]:
    """Flat positions of the elements of a C-contiguous array of ``shape`` that indices name.

    The index at (i, j, k) names (i, j, k) with coordinate ``axis`` replaced by the index.
    """
    normal, calls = normal_indices(binding, operand, shape[axis])
    strides = row_strides(shape)
    base = np.zeros((1,) * normal.ndim, np.int64)
    for other, (dim, stride) in enumerate(zip(normal.shape, strides, strict=True)):
        if other != axis:
            ones = (1,) * (normal.ndim - other - 1)
            base = base + (np.arange(dim) * stride).reshape(-1, *ones)
    steps = (
        partial(np.multiply, normal, strides[axis], out=normal),
        partial(np.add, normal, base, out=normal),
    )
    return _done_if_constant(normal, calls, steps)


def row_numbers(
    binding: Binding, operand: int, dims: tuple[int, ...], batch_dims: int = 0
) -> tuple[Array, tuple[Call, ...]]:
    """Flat numbers (1-D) of the rows that index tuples name, where ``dims`` number the rows.

    The last axis of the operand holds one tuple; its leading ``batch_dims`` axes are themselves
    the first coordinates of the rows.
    """
    shape = binding.input(operand).shape
    batch, depth = shape[:batch_dims], shape[-1]
    normal, calls = normal_indices(binding, operand, dims[batch_dims : batch_dims + depth])
    strides = row_strides(dims)
    tuples = normal.reshape(int(np.prod(batch)), int(np.prod(shape[batch_dims:-1])), depth)
    weights = strides[batch_dims : batch_dims + depth]
    constant = binding.is_constant(operand)
    rows = (np.empty if constant else binding.scratch.take)(tuples.shape[:2], np.int64)
    first = np.zeros(batch or (1,), np.int64)
    for axis, dim in enumerate(batch):
        first += (np.arange(dim) * strides[axis]).reshape(-1, *(1,) * (len(batch) - axis - 1))
    steps = (
        partial(np.matmul, tuples, weights, out=rows),
        partial(np.add, rows, first.reshape(-1, 1), out=rows),
    )
    flat, calls = _done_if_constant(rows, calls, steps)
    return flat.reshape(-1), calls


def _done_if_constant(
    result: Array, calls: tuple[Call, ...], steps: tuple[Call, ...]
) -> tuple[Array, tuple[Call, ...]]:
    """The result and the calls left to do: none if no call is needed to know the indices."""
    if calls:
        return result, (*calls, *steps)
    for step in steps:
        step()
    return result, ()
