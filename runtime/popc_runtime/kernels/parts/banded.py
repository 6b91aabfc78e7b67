"""Resampling along axes by narrow matrix products: interpolation, and its adjoint.

Why matrix products?  Interpolating an axis is a product with a banded matrix.  A block of outputs
reads a short range of inputs, so the band splits into small dense matrices, and BLAS beats gather
and lerp by a factor of three although it multiplies by zeros.  The price: a non-finite element
spoils the whole block of outputs that reads its range, not only its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Call, Scratch
from popc_runtime.kernels.core.bound import merged_view
from popc_runtime.kernels.core.copying import copy_calls
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.sharing import even_slices, share_count
from popc_runtime.kernels.parts.resample import Taps

__all__ = ["replaced", "resampled"]

# Outputs per matrix product of a growing axis; a shrinking one takes about this many inputs.
_BLOCK: Final = 32
_SMALLEST_BLOCK: Final = 8  # a product of 8 x 8 takes numpy 1.6 us, nearly all of it the call
# Interleaved channels up to this many are multiplied by zeros rather than looped over.
_INTERLEAVED: Final = 8
_PIECE: Final = 1 << 17  # elements read and written between two passes over memory


def resampled(
    scratch: Scratch, source: Array, out: Array, tables: Sequence[tuple[int, Taps]]
) -> tuple[tuple[Call, ...], Array]:
    """The calls that resample axes of ``source`` (C-contiguous) one after another, and the result.

    The result is ``out`` if that is of the dtype of ``source`` and lies as products need it, else
    temporary memory.
    """
    first = min(axis for axis, _ in tables)
    lead = prod(source.shape[:first])
    before = source.reshape(lead, *source.shape[first:])
    target, after = out, merged_view(out, (lead, *out.shape[first:]))
    if after is None or out.dtype != source.dtype:
        target = scratch.take(out.shape, source.dtype)
        after = target.reshape(lead, *out.shape[first:])
    steps = [(axis - first + 1, table) for axis, table in tables]
    size = source.size + target.size
    pieces = even_slices(lead, min(lead, -(-size // _PIECE)))
    cuts = even_slices(len(pieces), share_count(multiplications=_BLOCK * size, elements=2 * size))
    build = partial(_pieces, scratch, before, after, steps)
    return parallel_calls(scratch, [partial(build, pieces[cut]) for cut in cuts]), target


def _pieces(
    scratch: Scratch,
    before: Array,
    after: Array,
    steps: Sequence[tuple[int, Taps]],
    pieces: Sequence[slice],
) -> Iterator[Call]:
    """Each piece goes through all steps, so that what lies between them stays in the cache."""
    mark = scratch.mark()
    for piece in pieces:
        scratch.rewind(mark)
        source = before[piece]
        for axis, table in steps[:-1]:
            shape = replaced(source.shape, axis, len(table.indices))
            target = scratch.take(shape, source.dtype)
            yield from _banded_products(source, target, axis, table)
            source = target
        goal, (axis, table) = after[piece], steps[-1]
        if _merged(goal, axis) is not None:
            yield from _banded_products(source, goal, axis, table)
            continue
        target = scratch.take(goal.shape, goal.dtype)  # where the result lies, it has gaps
        yield from _banded_products(source, target, axis, table)
        yield from copy_calls(goal, target)


def replaced(shape: Sequence[int], axis: int, dim: int) -> tuple[int, ...]:
    """``shape`` with another size of one axis."""
    return (*shape[:axis], dim, *shape[axis + 1 :])


def _banded_products(source: Array, target: Array, axis: int, table: Taps) -> list[Call]:
    _, length, trail = _split(source.shape, axis)
    resized = target.shape[axis]
    block = min(max(_BLOCK * resized // length, _SMALLEST_BLOCK), _BLOCK)
    before, after = _merged(source, axis), _merged(target, axis)
    assert before is not None, "the source is contiguous"
    assert after is not None, "somebody has looked"
    merge = before.ndim == 2
    width = trail if merge else 1
    calls: list[Call] = []
    for start in range(0, resized, block):
        stop = min(start + block, resized)
        first, matrix = _band(table, start, stop, source.dtype)
        last = first + matrix.shape[1]
        if merge:
            matrix = np.kron(matrix, np.eye(width, dtype=matrix.dtype))
        part = before[:, first * width : last * width]
        goal = after[:, start * width : stop * width]
        operands = (part, matrix.T.copy()) if merge else (matrix, part)
        calls.append(partial(np.matmul, *operands, out=goal))
    return calls


def _merged(array: Array, axis: int) -> Array | None:
    """``array`` as products take it, if it lies so.

    [lead, length, trail], or [lead, length * trail] where few elements lie behind the axis.
    """
    lead, length, trail = _split(array.shape, axis)
    merge = trail <= _INTERLEAVED and lead > 1
    return merged_view(array, (lead, length * trail) if merge else (lead, length, trail))


def _band(table: Taps, start: int, stop: int, dtype: np.dtype[Any]) -> tuple[int, Array]:
    """First input that outputs ``start`` to ``stop`` read, and the matrix of their weights."""
    indices = np.array(table.indices[start:stop])
    weights = np.array(table.weights[start:stop])
    first = int(indices.min())
    matrix = np.zeros((stop - start, int(indices.max()) - first + 1))
    np.add.at(matrix, (np.arange(stop - start)[:, None], indices - first), weights)
    return first, matrix.astype(dtype)


def _split(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """``shape`` as three dimensions with ``axis`` in the middle."""
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
