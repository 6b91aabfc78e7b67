"""Softmax and LogSoftmax along one axis, with gradients, and the exponentials of attention.

Why is a whole block shifted by one number before exp, and not each row by its own maximum?  Row
maxima of short rows cost numpy more than the exponentials themselves.  Any shift gives the same
softmax as long as no row's sum comes near underflow; sums tell, and then the block is redone
row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, Scratch
from popc_runtime.kernels.core.copying import as_contiguous, is_same_memory
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.sharing import even_slices, share_count
from popc_runtime.kernels.reduce import reduce_into

__all__ = ["KERNELS", "exponentials", "row_blocks"]

_BLOCK: Final = 1 << 16  # elements that stay in L2

# (blocks of the operands, contiguous work array, block of the output, scratch) -> calls
_Body: TypeAlias = "Callable[[Sequence[Array], Array, Array, Scratch], list[Call]]"
_Cut: TypeAlias = tuple[slice, slice, slice]


def exponentials(x: Array, y: Array, sums: Array, scratch: Scratch, *, zero: bool = False) -> Call:
    """A call for ``y = exp(x - shift)`` and ``sums = y.sum(axis=1)``.

    ``x`` and ``y`` are [outer, n, inner] and do not overlap, ``sums`` is [outer, 1, inner]; ``y``
    and ``sums`` are contiguous float32 or float64.  ``y / sums`` is the softmax of ``x`` along
    axis 1: where all of ``x`` is -inf NaN, as IEEE arithmetic has it, or with ``zero`` 0.
    """
    subtract, exp, largest, smallest = np.subtract, np.exp, np.maximum.reduce, np.minimum.reduce
    add_up = tuple(reduce_into(np.add, y, (1,), sums, scratch))
    peaks = scratch.take(sums.shape, y.dtype)
    # |x - shift| stays below 46 (230), which costs at most 2e-6 (3e-14) of relative accuracy.
    tiny = 1e-20 if y.dtype == np.float32 else 1e-100

    def call() -> None:
        subtract(x, largest(x, None, y.dtype), out=y)
        exp(y, out=y)
        for step in add_up:
            step()
        if smallest(sums, None) > tiny:
            return
        largest(x, 1, None, peaks, keepdims=True)
        if zero:
            np.copyto(peaks, 0, where=np.isneginf(peaks))
        subtract(x, peaks, out=y)
        exp(y, out=y)
        for step in add_up:
            step()
        if zero:
            np.copyto(sums, 1, where=sums == 0)

    return call


def _softmax_block(operands: Sequence[Array], y: Array, out: Array, scratch: Scratch) -> list[Call]:
    """Call by call for float64: native kernels know these; float32 has a kernel of its own."""
    (x,) = operands
    sums = scratch.take((x.shape[0], 1, x.shape[2]), y.dtype)
    if y.dtype != np.float64:
        powers = [exponentials(x, y, sums, scratch)]
    else:
        peaks = scratch.take(sums.shape, y.dtype)
        powers = [
            partial(np.maximum.reduce, x, 1, None, peaks, keepdims=True),
            partial(np.subtract, x, peaks, out=y),
            partial(np.exp, y, out=y),
            *reduce_into(np.add, y, (1,), sums, scratch),
        ]
    return [*powers, partial(np.divide, y, sums, out=y), *_store(y, out)]


def _log_softmax_block(
    operands: Sequence[Array], y: Array, out: Array, scratch: Scratch
) -> list[Call]:
    """(x - peak) - log(sum(exp(x - peak))): accurate also where the result is near zero."""
    (x,) = operands
    sums = scratch.take((x.shape[0], 1, x.shape[2]), y.dtype)
    peaks = scratch.take(sums.shape, y.dtype)
    powers = scratch.take(y.shape, y.dtype)
    return [
        partial(np.maximum.reduce, x, 1, None, peaks, keepdims=True),
        partial(np.subtract, x, peaks, out=y),
        partial(np.exp, y, out=powers),
        *reduce_into(np.add, powers, (1,), sums, scratch),
        partial(np.log, sums, out=sums),
        partial(np.subtract, y, sums, out=y),
        *_store(y, out),
    ]


def _softmax_grad_block(
    operands: Sequence[Array], work: Array, out: Array, scratch: Scratch
) -> list[Call]:
    """(g - sum(g y)) y, from the gradient g of the result y."""
    g, y = operands
    sums = scratch.take((y.shape[0], 1, y.shape[2]), work.dtype)
    return [
        *_inner_products(g, y, work, sums, scratch),
        partial(np.subtract, g, sums, out=work),
        partial(np.multiply, work, y, out=work),
        *_store(work, out),
    ]


def _inner_products(g: Array, y: Array, work: Array, sums: Array, scratch: Scratch) -> list[Call]:
    if y.shape[2] == 1 and y.dtype == sums.dtype:
        return [partial(np.vecdot, g[:, :, 0], y[:, :, 0], out=sums[:, 0, 0])]
    multiply = partial(np.multiply, g, y, out=work, dtype=work.dtype)
    return [multiply, *reduce_into(np.add, work, (1,), sums, scratch)]


def _log_softmax_grad_block(
    operands: Sequence[Array], work: Array, out: Array, scratch: Scratch
) -> list[Call]:
    """g - exp(y) sum(g), from the gradient g of the result y."""
    g, y = operands
    sums = scratch.take((y.shape[0], 1, y.shape[2]), work.dtype)
    wide: list[Call] = [] if g.dtype == work.dtype else [partial(np.copyto, work, g)]
    return [
        *wide,
        *reduce_into(np.add, work if wide else g, (1,), sums, scratch),
        partial(np.exp, y, out=work, dtype=work.dtype),
        partial(np.multiply, work, sums, out=work),
        partial(np.subtract, g, work, out=work),
        *_store(work, out),
    ]


def _store(y: Array, out: Array) -> list[Call]:
    return [] if y is out else [partial(np.copyto, out, y, casting="same_kind")]


def _blockwise(body: _Body, passes: int) -> Kernel:
    """Blocks of all operands; ``passes`` says about how many times an element is worked on."""

    def kernel(binding: Binding) -> Calls:
        out, axis = binding.output(), binding.integer("axis")
        if out.size == 0:
            return ()
        shape = (prod(out.shape[:axis]), out.shape[axis], prod(out.shape[axis + 1 :]))
        operands: list[Array] = []
        before: list[Call] = []
        for index in range(len(binding.inputs)):
            contiguous, calls = as_contiguous(binding, index)
            operands.append(contiguous.reshape(shape))
            before += calls
        cuts = list(row_blocks(shape))
        build = partial(_blocks, body, operands, out.reshape(shape), binding.scratch)
        count = share_count(elements=passes * out.size, most=len(cuts))
        chunks = [partial(build, cuts[part]) for part in even_slices(len(cuts), count)]
        return (*before, *parallel_calls(binding.scratch, chunks))

    return kernel


def _blocks(
    body: _Body, operands: Sequence[Array], out: Array, scratch: Scratch, cuts: Sequence[_Cut]
) -> Iterator[Call]:
    """Blocks one after another, with the same temporaries."""
    dtype = np.result_type(out.dtype, np.float32)
    mark = scratch.mark()
    for cut in cuts:
        scratch.rewind(mark)
        result = out[cut]
        parts = [array[cut] for array in operands]
        apart = not any(is_same_memory(part, result) for part in parts)
        direct = apart and result.dtype == dtype and result.flags.c_contiguous
        work = result if direct else scratch.take(result.shape, dtype)
        yield from body(parts, work, result, scratch)


def row_blocks(shape: tuple[int, int, int]) -> Iterator[_Cut]:
    """Cut [outer, n, inner] into blocks that hold whole rows along axis 1."""
    outer, size, inner = shape
    if size * inner <= _BLOCK or inner == 1:
        rows, columns = max(1, _BLOCK // (size * inner)), inner
    else:
        rows, columns = 1, min(inner, max(16, _BLOCK // size))
    for row in range(0, outer, rows):
        for column in range(0, inner, columns):
            yield slice(row, row + rows), slice(None), slice(column, column + columns)


KERNELS: Final[dict[str, Kernel]] = {
    "LogSoftmax": _blockwise(_log_softmax_block, 8),
    "LogSoftmaxGrad": _blockwise(_log_softmax_grad_block, 8),
    "Softmax": _blockwise(_softmax_block, 6),
    "SoftmaxGrad": _blockwise(_softmax_grad_block, 4),
}
