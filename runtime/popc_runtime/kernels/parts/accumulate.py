"""Rows combined with those of a table at places that are known at run time and may repeat.

`ufunc.at` counts every repetition.  It is fast on single elements at flat positions, less so on
rows; to add, two neighbours may pass as one complex number.  Positions take more memory than the
rows themselves, so they are made block by block.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Call, Scratch

__all__ = ["clear", "combine_rows"]

_BLOCK: Final = 1 << 15  # elements per call

_PAIRS: Final = {np.dtype(np.float32): np.complex64, np.dtype(np.float64): np.complex128}


def clear(out: Array) -> Call:
    """The call that sets all of ``out`` (C-contiguous) to zero, as fast as memory allows."""
    return partial(out.reshape(-1).view(np.uint8).fill, 0)


def _as_pairs(*arrays: Array) -> tuple[Array, ...]:
    """C-contiguous arrays seen as neighbours joined to complex numbers, which add up alike.

    They stay as they are unless all are of one float type that allows it and have even rows.
    """
    first = arrays[0]
    pair = _PAIRS.get(first.dtype)
    if pair is None or any(array.shape[-1] % 2 for array in arrays):
        return arrays
    return tuple(array.view(pair) for array in arrays)


def combine_rows(
    scratch: Scratch, combine: np.ufunc, table: Array, rows: Array, values: Array
) -> tuple[Call, ...]:
    """The calls that do ``table[rows] = combine(table[rows], values)``, every repetition in order.

    Args:
        scratch: Where positions are kept.
        combine: numpy's add, multiply, minimum or maximum.
        table: [T, width], C-contiguous.
        rows: [R] row numbers in 0...T-1, int64.
        values: [R, width], C-contiguous, of the table's dtype.
    """
    if values.size == 0:
        return ()
    if combine is np.add:
        table, values = _as_pairs(table, values)
    flat, (count, width) = table.reshape(-1), values.shape
    if width == 1:
        return (partial(combine.at, flat, rows, values.reshape(-1)),)
    columns: Array = np.arange(width)
    firsts: Array = scratch.take((count, 1), np.int64)
    high, wide = max(1, _BLOCK // width), min(width, _BLOCK)
    buffer = scratch.take((min(high, count) * wide,), np.int64)
    calls: list[Call] = [partial(np.multiply, rows.reshape(-1, 1), width, out=firsts)]
    for start in range(0, count, high):
        block = slice(start, start + high)
        for left in range(0, width, wide):
            part = slice(left, left + wide)
            chosen = values[block, part]  # whole rows, or part of one
            positions = buffer[: chosen.size]
            target = positions.reshape(chosen.shape)
            calls.append(partial(np.add, firsts[block], columns[part], out=target))
            calls.append(partial(combine.at, flat, positions, chosen.reshape(-1)))
    return tuple(calls)
