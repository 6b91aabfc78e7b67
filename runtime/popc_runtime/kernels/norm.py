"""Normalisation: elements are centred and scaled by statistics of the group they belong to.

Layer, instance, group and RMS normalisation are one algorithm on [rows, length]: each row is a
group.  Rows are done in blocks that stay in L2; sums are products with ones, sums of squares are
products of rows with themselves (BLAS).  Statistics are computed in float32 (float64 for float64),
and the variance from centred values, so that a large mean costs no accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.binding import Binding, Call, Calls, Kernel, Scratch
from popc_runtime.kernels.blocking import blocked
from popc_runtime.kernels.copying import as_contiguous
from popc_runtime.kernels.reduce import reduce_into

__all__ = ["KERNELS"]

_BLOCK: Final = 1 << 16  # elements that stay in L2


def _compute_dtype(x: Array) -> np.dtype[Any]:
    return np.dtype(np.float64 if x.dtype == np.float64 else np.float32)


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of rows: of the operand, a work array and the result ([rows, length] each).

    ``work`` is contiguous, in the dtype of the computation, and may be ``out`` itself.
    ``mean`` and ``inverse`` are [rows, 1].
    """

    start: int
    x: Array
    work: Array
    out: Array
    mean: Array
    inverse: Array

    @property
    def rows(self) -> slice:
        return slice(self.start, self.start + len(self.x))


def _blocks(
    x: Array, out: Array, mean: Array, inverse: Array, scratch: Scratch
) -> Iterator[_Block]:
    """The rows of ``x`` [rows, length], a cache-sized block at a time."""
    rows, length = x.shape
    step = max(1, _BLOCK // max(length, 1))
    mark = scratch.mark()
    for start in range(0, rows, step):
        scratch.rewind(mark)
        cut = slice(start, start + step)
        target = out[cut]
        work = target if out.dtype == mean.dtype else scratch.take(target.shape, mean.dtype)
        yield _Block(start, x[cut], work, target, mean[cut], inverse[cut])


def _standardize(block: _Block, epsilon: float, scratch: Scratch, *, centred: bool) -> list[Call]:
    """Calls that leave the (centred) elements in ``work`` and 1 / deviation in ``inverse``."""
    work, mean, inverse = block.work, block.mean, block.inverse
    length = work.dtype.type(work.shape[1])
    calls: list[Call] = []
    source = block.x
    if source.dtype != work.dtype:
        calls.append(partial(np.copyto, work, source))
        source = work
    if centred:
        calls += [
            *reduce_into(np.add, source, (1,), mean, scratch),
            partial(np.divide, mean, length, out=mean),
            partial(np.subtract, source, mean, out=work),
        ]
        source = work
    return [
        *calls,
        partial(np.vecdot, source, source, out=inverse[:, 0]),
        partial(np.divide, inverse, length, out=inverse),
        partial(np.add, inverse, inverse.dtype.type(epsilon), out=inverse),
        partial(np.sqrt, inverse, out=inverse),
        partial(np.reciprocal, inverse, out=inverse),
    ]


def _store(block: _Block) -> list[Call]:
    if block.work is block.out:
        return []
    return [partial(np.copyto, block.out, block.work, casting="same_kind")]


def _converted(binding: Binding, index: int, dtype: np.dtype[Any]) -> tuple[Array, list[Call]]:
    """A small operand as ``dtype``, and the calls that fill it before it is read."""
    array = binding.input(index)
    if array.dtype == dtype:
        return array, []
    if binding.is_constant(index):
        return array.astype(dtype), []
    wide = binding.scratch.take(array.shape, dtype)
    return wide, [partial(np.copyto, wide, array, casting="same_kind")]


# -- LayerNormalization, RMSNormalization --------------------------------------------------------


def _normalize_last(*, centred: bool) -> Kernel:
    """Over all axes from ``axis`` on; scale and bias broadcast to the operand."""

    def kernel(binding: Binding) -> Calls:
        x, before = as_contiguous(binding, 0)
        calls = list(before)
        out, axis = binding.output(), binding.integer("axis")
        if x.size == 0:
            return ()
        rows, length = prod(x.shape[:axis]), prod(x.shape[axis:])
        dtype = _compute_dtype(x)
        mean, inverse = (binding.scratch.take((rows, 1), dtype) for _ in range(2))
        scale, bias, prepare = _row_affine(binding, x.shape[axis:], dtype)
        calls += prepare
        x2, out2 = x.reshape(rows, length), out.reshape(rows, length)
        source_is_work = centred or x.dtype != dtype
        for block in _blocks(x2, out2, mean, inverse, binding.scratch):
            epsilon = binding.number("epsilon")
            calls += _standardize(block, epsilon, binding.scratch, centred=centred)
            source = block.work if source_is_work else block.x
            calls.append(partial(np.multiply, source, block.inverse, out=block.work))
            calls += _affine(block.work, scale, bias)
            calls += _store(block)
        return (*calls, *_broadcast_affine(binding, out, scale, bias), *_statistics(binding, mean, inverse))

    return kernel


def _row_affine(
    binding: Binding, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[Array | None, Array | None, list[Call]]:
    ...
