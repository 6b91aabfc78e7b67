"""Elementwise work in blocks that stay in the cache.

Why blocks?  Most functions of a tensor are chains of numpy ufuncs, and each ufunc walks its whole
operands.  On a large tensor every step of the chain would stream through main memory and need a
temporary of the same size.  Cut into blocks, the chain runs on one block after the other: the
intermediate values stay in the second-level cache, and temporaries are one block long.

`blocked` is the tool for kernels: give it a function that returns the calls of *one* block, and it
returns the calls of all of them.  `conversion` changes the dtype of a tensor.  `coalesce` and
`split` are parts of both, useful where a kernel wants blocks of its own kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Call, Scratch
from popc_runtime.kernels.core.half import HalfConverter, is_half_conversion
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.sharing import even_slices

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["BLOCK_BYTES", "Steps", "blocked", "coalesce", "conversion", "split", "work_dtype"]

# Bytes of one operand in one block.  A chain touches three to five operands and temporaries: they
# fit a second-level cache of 512 KB, and the cost of a call is small against 24 k elements.
BLOCK_BYTES: Final = 3 << 15

# From so many elements on, threads share the blocks, which are larger then: between two calls only
# one thread runs, so that calls of a few microseconds leave the other waiting.
_WORTH_SHARING: Final = 1 << 19
_SHARED_BLOCK: Final = 4  # times the size of blocks of a single thread
_MOST_SHARES: Final = 4  # parts, whatever the number of threads: results must not depend on it

# (output block, operand blocks..., temporaries..., masks...) -> calls for that block
Steps: TypeAlias = Callable[..., Iterable[Call]]


def work_dtype(*arrays: Array) -> np.dtype[np.generic]:
    """The dtype to compute in: that of the first array, but float32 if any array is float16.

    numpy has no vector instructions for most float16 functions, and a chain that rounds once is
    more accurate than one that rounds at each step.
    """
    if any(array.dtype == np.float16 for array in arrays):
        return np.dtype(np.float32)
    return arrays[0].dtype


def blocked(
    steps: Steps,
    out: Array,
    operands: Sequence[Array],
    scratch: Scratch,
    *,
    temporaries: int = 0,
    masks: int = 0,
    work: npt.DTypeLike | None = None,
) -> tuple[Call, ...]:
    """The calls that compute ``out`` elementwise from ``operands``, block by block.

    ``steps`` is called at least once per block while binding, with arrays of the block's shape
    (operands that are one element for all are 0-d): the output block, one block of each operand,
    ``temporaries`` uninitialised arrays of the work dtype and ``masks`` bool arrays.  It returns
    the calls for that block in order.  An operand may be the same memory as ``out``, so a step
    must not write the output block while a later step still reads that operand.

    Args:
        steps: Makes the calls of one block.
        out: The result; C-contiguous, or any view without repeated elements.
        operands: Arrays that broadcast to ``out``; strided and broadcast views are fine.
        scratch: Where temporaries are taken from.
        temporaries: Number of temporary arrays of the work dtype.
        masks: Number of temporary bool arrays.
        work: Dtype to compute in (default: `work_dtype` of output and operands, and operands are
            converted only if one is float16).  Floating operands and the output are converted
            block by block; conversion to an integer output truncates.
    """
    dtype = np.dtype(work_dtype(out, *operands) if work is None else work)
    convert = work is not None or dtype != out.dtype
    if not (convert or temporaries or masks):
        whole = tuple(steps(*coalesce(out, operands)))
        if len(whole) == 1:  # nothing stays in the cache between steps if there is one
            return whole if out.size else ()
    shares = _MOST_SHARES if out.size >= _WORTH_SHARING else 1
    block = BLOCK_BYTES * (_SHARED_BLOCK if shares > 1 else 1)
    pieces = list(split(out, operands, block // dtype.itemsize))
    wide = sum(_is_converted(array, dtype) for array in (out, *operands)) if convert else 0
    dtypes = [dtype] * (wide + temporaries) + [np.dtype(np.bool_)] * masks
    build = partial(_blocks, steps, scratch, dtypes, dtype if convert else None)
    cuts = even_slices(len(pieces), shares)
    return parallel_calls(scratch, [partial(build, pieces[cut]) for cut in cuts])


def _blocks(
    steps: Steps,
    scratch: Scratch,
    dtypes: Sequence[np.dtype[np.generic]],
    work: np.dtype[np.generic] | None,
    pieces: Sequence[tuple[Array, ...]],
) -> Iterator[Call]:
    """Blocks one after another with the same temporaries, of ``dtypes``.

    ``work``: the dtype that operands and result are converted to; ``None``: they are not.
    """
    capacity = max((piece[0].size for piece in pieces), default=0)
    memory = [scratch.take((capacity,), item) for item in dtypes]
    converter = None if work is None else HalfConverter(scratch, capacity)
    for result, *inputs in pieces:
        extra = [array[: result.size].reshape(result.shape) for array in memory]
        if work is not None and converter is not None:
            yield from _converted(steps, result, inputs, extra, work, converter)
        else:
            yield from steps(result, *inputs, *extra)


def conversion(out: Array, x: Array, scratch: Scratch) -> tuple[Call, ...]:
    """The calls that fill ``out`` with ``x``, which broadcasts to it, in the dtype of ``out``.

    As C converts: floats to integers toward zero, wider integers by dropping high bits.
    """
    if not is_half_conversion(out, x):
        target, source = coalesce(out, [x])
        return (partial(np.copyto, target, source, casting="unsafe"),)
    pieces = list(split(out, [x], BLOCK_BYTES // 4))
    converter = HalfConverter(scratch, max((piece[0].size for piece in pieces), default=0))
    return tuple(call for piece in pieces for call in converter.calls(*piece))


def _is_converted(array: Array, dtype: np.dtype[np.generic]) -> bool:
    return array.dtype not in (dtype, np.bool_)


def _converted(
    steps: Steps,
    result: Array,
    inputs: list[Array],
    extra: list[Array],
    dtype: np.dtype[np.generic],
    converter: HalfConverter,
) -> Iterator[Call]:
    """``steps`` between conversions of the operands to ``dtype`` and of the result from it."""
    free = iter(extra)
    ready = []
    for array in inputs:
        if _is_converted(array, dtype):
            wide = next(free) if array.ndim else next(free).reshape(-1)[:1].reshape(())
            yield from converter.calls(wide, array)
            ready.append(wide)
        else:
            ready.append(array)
    target = next(free) if _is_converted(result, dtype) else result
    yield from steps(target, *ready, *free)
    if target is not result:
        yield from converter.calls(result, target)


def coalesce(out: Array, operands: Sequence[Array], keep: int = 0) -> tuple[Array, ...]:
    """Views of ``out`` and of ``operands`` broadcast to it, with as few axes as possible.

    Adjacent axes that every array walks with one stride become one; same-shape contiguous arrays
    become 1-D.  The last ``keep`` axes stay as they are; without, axes come in the order in which
    ``out`` lies in memory.  An operand of one element becomes 0-d
    (unless ``keep``), which numpy handles faster than a broadcast view.
    """
    wide = [out, *(np.broadcast_to(array, out.shape, subok=True) for array in operands)]
    if not keep and not out.flags.c_contiguous:  # go through memory in its order
        order = sorted(range(out.ndim), key=lambda axis: -abs(out.strides[axis]))
        wide = [array.transpose(order) for array in wide]
    shape, strides = _merged(wide[0].shape, [array.strides for array in wide], keep)
    views = [
        as_strided(array, shape, steps, writeable=number == 0, subok=True)
        for number, (array, steps) in enumerate(zip(wide, strides, strict=True))
    ]
    for index, array in enumerate(operands, start=1):
        if array.size == 1 and not keep:
            views[index] = array.reshape(())
    return tuple(views)


def _merged(
    shape: tuple[int, ...], strides: Sequence[tuple[int, ...]], keep: int
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """``shape`` and the strides of each array with adjacent axes merged where possible."""
    rank = len(shape) - keep
    dims: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis in range(rank):
        if shape[axis] == 1 and (dims or axis + 1 < rank):
            continue
        inner = [array[axis] for array in strides]
        if dims and all(s[-1] == i * shape[axis] for s, i in zip(steps, inner, strict=True)):
            dims[-1] *= shape[axis]
            for step, stride in zip(steps, inner, strict=True):
                step[-1] = stride
        else:
            dims.append(shape[axis])
            for step, stride in zip(steps, inner, strict=True):
                step.append(stride)
    if not dims:
        dims = [1]
        steps = [[0] for _ in strides]
    merged = [(*step, *array[rank:]) for step, array in zip(steps, strides, strict=True)]
    return (*dims, *shape[rank:]), merged


def split(
    out: Array, operands: Sequence[Array], elements: int, keep: int = 0
) -> Iterator[tuple[Array, ...]]:
    """Matching blocks of ``out`` and of ``operands`` broadcast to it, about ``elements`` long.

    The last ``keep`` axes are never cut, however long they are (rows that a reduction needs whole);
    the others are merged as `coalesce` does and cut evenly.  Nothing is yielded for an empty
    ``out``.
    """
    arrays = coalesce(out, operands, keep)
    shape = arrays[0].shape
    if 0 in shape:
        return
    if arrays[0].size <= elements + elements // 2:
        yield arrays
        return
    rank = len(shape) - keep
    axis = next((k for k in range(rank) if prod(shape[k + 1 :]) <= elements), rank - 1)
    rows = max(1, elements // prod(shape[axis + 1 :]))
    rows = -(-shape[axis] // -(-shape[axis] // rows))
    for outer in np.ndindex(shape[:axis]):
        for start in range(0, shape[axis], rows):
            index = (*outer, slice(start, start + rows))
            yield tuple(array[index] if array.ndim else array for array in arrays)
