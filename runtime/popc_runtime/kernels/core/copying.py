"""Fast copies from one strided array to another, shared by every kernel that moves data.

numpy copies in the order of the target's memory.  When the source runs across it (a transpose),
each element touches another cache line, and a large matrix evicts every line before its neighbours
are wanted.  Copying panels of a few dozen columns keeps the lines in use in the cache: the same
numpy call, up to ten times faster.

Where only a few elements lie side by side, numpy spends its time between them.  As one element of
so many bytes they are copied two or three times as fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from types import EllipsisType
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import as_strided

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call

__all__ = ["as_contiguous", "as_runs", "copy_calls", "is_same_memory", "subarray"]

_PANEL: Final = 64  # columns of the target per call
_NARROWEST: Final = 8  # below this the loop overhead outweighs the cache misses
_FEW_COLUMNS: Final = 4  # so few are copied one by one: the inner loop runs over the rows
_CALL_ELEMENTS: Final = 1 << 14  # less per call would not pay for the call
_CACHE_LINES: Final = 4096  # lines of the source that a panel may keep in use: half of L2
_LONGEST_RUN: Final = 56  # bytes side by side that are copied faster as one element
_SMALL_BYTES: Final = 1 << 15  # what fits the first-level cache needs no panels


def copy_calls(target: Array, source: Array) -> tuple[Call, ...]:
    """Calls that copy ``source`` into ``target`` (same shape and dtype, no overlap).

    Raises:
        ValueError: they have other shapes.
    """
    if target.shape != source.shape:
        raise ValueError(f"{source.shape} is copied to {target.shape}")
    if target.size == 0:
        return ()
    to, from_ = as_runs(*_coalesced(target, source))
    width = _panel_width(to, from_)
    columns = to.shape[-1] if to.ndim else 1
    if width >= columns:
        return (partial(np.copyto, to, from_),)
    return tuple(
        partial(np.copyto, to[..., start : start + width], from_[..., start : start + width])
        for start in range(0, columns, width)
    )


def as_runs(target: Array, source: Array) -> tuple[Array, Array]:
    """Both with rows of a few elements as single elements, to be copied faster."""
    if target.ndim < 2:
        return target, source
    bytes_each = target.shape[-1] * target.itemsize
    in_runs = all(array.strides[-1] == array.itemsize for array in (target, source))
    if not in_runs or not target.itemsize < bytes_each <= _LONGEST_RUN:
        return target, source
    run = np.dtype((np.void, bytes_each))
    return target.view(run)[..., 0], source.view(run)[..., 0]


def _coalesced(target: Array, source: Array) -> tuple[Array, Array]:
    """The two arrays in the order of the target's memory, with as few dimensions as possible."""
    order = sorted(range(target.ndim), key=lambda axis: -abs(target.strides[axis]))
    target, source = target.transpose(order), source.transpose(order)
    shape: list[int] = []
    to: list[int] = []
    from_: list[int] = []
    for dim, a, b in zip(target.shape, target.strides, source.strides, strict=True):
        if dim == 1:
            continue
        if shape and to[-1] == a * dim and from_[-1] == b * dim:
            shape[-1] *= dim
            to[-1], from_[-1] = a, b
        else:
            shape.append(dim)
            to.append(a)
            from_.append(b)
    return as_strided(target, shape, to, subok=True), as_strided(
        source, shape, from_, writeable=False, subok=True
    )


def _panel_width(to: Array, from_: Array) -> int:
    """Columns (elements of the last dimension) to copy per call."""
    if to.ndim < 2 or to.nbytes <= _SMALL_BYTES or abs(from_.strides[-1]) <= from_.itemsize:
        return to.shape[-1] if to.ndim else 1
    if to.shape[-1] <= _FEW_COLUMNS:
        return 1 if to.shape[-2] > to.shape[-1] else to.shape[-1]
    steps = [abs(stride) or np.inf for stride in from_.strides]
    along = steps.index(min(steps))
    between = prod(to.shape[along + 1 : -1])
    columns: int = to.shape[-1]
    width = max(_PANEL, _CALL_ELEMENTS * columns // to.size)
    width = max(_NARROWEST, min(width, _CACHE_LINES // between))
    return columns if columns < 2 * width else width


def as_contiguous(binding: Binding, index: int) -> tuple[Array, tuple[Call, ...]]:
    """Input ``index`` as a C-contiguous array, and the calls that fill it before it is read."""
    array = binding.input(index)
    if array.flags.c_contiguous:
        return array, ()
    if binding.is_constant(index):
        return np.ascontiguousarray(array), ()
    packed = binding.scratch.take(array.shape, array.dtype)
    return packed, copy_calls(packed, array)


def subarray(array: Array, windows: Sequence[slice]) -> Array:
    """The view of ``array`` in ``windows``, one per dimension; a view even if there are none."""
    index: tuple[slice | EllipsisType, ...] = (*windows, ...)
    return array[index]


def is_same_memory(a: Array, b: Array) -> bool:
    """True if two arrays of the same type are the same elements (an op done in place)."""
    return (
        a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
        and a.strides == b.strides
        and a.shape == b.shape
    )
