"""Normalisation: elements are centred and scaled by statistics of the group they belong to.

Layer, instance, group and RMS normalisation are one algorithm on [rows, length]: each row is a
group.  Rows are done in blocks that stay in L2; sums are products with ones, sums of squares are
products of rows with themselves (BLAS).  Statistics are computed in float32 (float64 for float64),
and the variance from centred values, so that a large mean costs no accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, Scratch
from popc_runtime.kernels.core.blocking import blocked
from popc_runtime.kernels.core.copying import as_contiguous
from popc_runtime.kernels.core.derived import derived
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.sharing import even_slices, share_count
from popc_runtime.kernels.reduce import reduce_into

__all__ = ["KERNELS", "power", "standardize", "window_sums"]

_BLOCK: Final = 1 << 16  # elements that stay in L2
_PASSES: Final = 6  # over the operand: to estimate whether sharing the work is worthwhile

_Step: TypeAlias = "tuple[np.ufunc, Array]"  # a function and its second operand


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


def _shared(
    binding: Binding,
    x: Array,
    out: Array,
    statistics: tuple[Array, Array],
    block_calls: Callable[[_Block], Iterable[Call]],
) -> tuple[Call, ...]:
    """The calls for all rows of ``x`` [rows, length], in blocks that threads share.

    ``statistics`` are the means and inverse deviations, [rows, 1].
    """
    share = partial(_share_calls, binding.scratch, x, out, statistics, block_calls)
    count = share_count(elements=_PASSES * x.size, most=len(x))
    chunks = [partial(share, rows) for rows in even_slices(len(x), count)]
    return parallel_calls(binding.scratch, chunks)


def _share_calls(
    scratch: Scratch,
    x: Array,
    out: Array,
    statistics: tuple[Array, Array],
    block_calls: Callable[[_Block], Iterable[Call]],
    rows: slice,
) -> Iterator[Call]:
    step = max(1, _BLOCK // max(x.shape[1], 1))
    (mean, inverse), mark = statistics, scratch.mark()
    for start in range(rows.start, rows.stop, step):
        scratch.rewind(mark)
        cut = slice(start, min(start + step, rows.stop))
        target = out[cut]
        work = target if out.dtype == mean.dtype else scratch.take(target.shape, mean.dtype)
        yield from block_calls(_Block(start, x[cut], work, target, mean[cut], inverse[cut]))


def standardize(
    x: Array,
    work: Array,
    mean: Array,
    inverse: Array,
    epsilon: float,
    scratch: Scratch,
    *,
    centred: bool,
) -> list[Call]:
    """Calls that leave the (centred) rows of ``x`` in ``work`` and 1 / deviation in ``inverse``.

    ``work``, ``mean`` and ``inverse`` are of the dtype of the computation.  Without centring,
    ``work`` is not written to if ``x`` is of that dtype.
    """
    length = work.dtype.type(work.shape[1])
    calls: list[Call] = []
    source = x
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


def _standardized(block: _Block, epsilon: float, scratch: Scratch, *, centred: bool) -> list[Call]:
    statistics = (block.mean, block.inverse)
    return standardize(block.x, block.work, *statistics, epsilon, scratch, centred=centred)


def _store(block: _Block) -> list[Call]:
    if block.work is block.out:
        return []
    return [partial(np.copyto, block.out, block.work, casting="same_kind")]


def _converted(
    binding: Binding, index: int, dtype: np.dtype[Any]
) -> tuple[Array, tuple[Call, ...]]:
    """A small operand as ``dtype``, and the calls that fill it before it is read."""
    array = binding.input(index)
    if array.dtype == dtype:
        return array, ()
    return derived(binding, [index], array.shape, dtype, lambda out: [_copy(out, array)])


def _copy(out: Array, array: Array) -> Call:
    return partial(np.copyto, out, array, casting="same_kind")


# -- LayerNormalization, RMSNormalization ----------------------------------------------------------


def _normalize_last(*, centred: bool) -> Kernel:
    """Over all axes from ``axis`` on; scale and bias broadcast to the operand."""

    def kernel(binding: Binding) -> Calls:
        x, before = as_contiguous(binding, 0)
        out, axis, scratch = binding.output(), binding.integer("axis"), binding.scratch
        if x.size == 0:
            wanted = (array for array in binding.outputs[1:] if array is not None)
            return tuple(partial(array.fill, np.nan) for array in wanted)  # means of nothing
        shape = (prod(x.shape[:axis]), prod(x.shape[axis:]))
        dtype = _compute_dtype(x)
        mean, inverse = (scratch.take((shape[0], 1), dtype) for _ in range(2))
        per_row, whole, prepare = _affine(binding, x.shape[axis:], dtype)
        rows = partial(_normalize_rows, binding, per_row, centred=centred)
        operands = (x.reshape(shape), out.reshape(shape), (mean, inverse))
        calls = [*before, *prepare, *_shared(binding, *operands, rows)]
        calls += (partial(f, out, operand, out=out, casting="same_kind") for f, operand in whole)
        return (*calls, *_statistics(binding, mean, inverse))

    return kernel


def _normalize_rows(
    binding: Binding, per_row: Sequence[_Step], block: _Block, *, centred: bool
) -> Iterator[Call]:
    epsilon = binding.number("epsilon")
    yield from _standardized(block, epsilon, binding.scratch, centred=centred)
    untouched = not centred and block.x.dtype == block.work.dtype
    source = block.x if untouched else block.work
    yield partial(np.multiply, source, block.inverse, out=block.work)
    yield from (partial(f, block.work, vector, out=block.work) for f, vector in per_row)
    yield from _store(block)


def _affine(
    binding: Binding, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[list[_Step], list[_Step], list[Call]]:
    """The steps that scale and shift the normalised elements: per row, or else the whole result.

    ``shape`` is that of one row.  The third result are calls to make before.
    """
    functions = ((1, np.multiply), (2, np.add))
    present = [(index, f) for index, f in functions if binding.optional(index) is not None]
    per_row: list[_Step] = []
    calls: list[Call] = []
    for index, function in present:
        array, prepare = _converted(binding, index, dtype)
        vector = _as_row(array, shape, constant=binding.is_constant(index))
        if vector is None:
            return [], [(f, binding.input(i)) for i, f in present], []
        per_row.append((function, vector))
        calls += prepare
    return per_row, [], calls


def _as_row(array: Array, shape: tuple[int, ...], *, constant: bool) -> Array | None:
    """``array`` as a vector that applies to each row, if that is what it is."""
    extra = array.ndim - len(shape)
    if extra > 0 and any(size != 1 for size in array.shape[:extra]):
        return None
    inner = array.reshape(array.shape[max(extra, 0) :])
    if inner.shape == shape and inner.flags.c_contiguous:
        return inner.reshape(-1)
    return np.broadcast_to(inner, shape, subok=True).reshape(-1) if constant else None


def _statistics(binding: Binding, mean: Array, inverse: Array) -> list[Call]:
    """Copies into the outputs Mean and InvStdDev, where they are wanted."""
    wanted = ((binding.optional_output(1), mean), (binding.optional_output(2), inverse))
    return [
        partial(np.copyto, target.reshape(values.shape), values, casting="same_kind")
        for target, values in wanted
        if target is not None
    ]


# -- InstanceNormalization, GroupNormalization -----------------------------------------------------


def _normalize_groups(binding: Binding) -> Calls:
    """Over groups of channels (each with all its pixels) of [N, C, ...]; scale, bias are [C]."""
    x, before = as_contiguous(binding, 0)
    out, scratch = binding.output(), binding.scratch
    if x.size == 0:
        return ()
    channels = x.shape[1]
    groups = binding.integer("num_groups", channels)
    rows, width = x.shape[0] * groups, channels // groups
    dtype = _compute_dtype(x)
    mean, inverse = (scratch.take((rows, 1), dtype) for _ in range(2))
    factors = scratch.take((rows, width, 1), dtype)
    scale, prepare_scale = _per_row(binding, 1, (rows, width, 1), dtype)
    bias, prepare_bias = _per_row(binding, 2, (rows, width, 1), dtype)
    pixels = partial(_normalize_pixels, binding, factors, scale, bias)
    operands = (x.reshape(rows, -1), out.reshape(rows, -1), (mean, inverse))
    calls = _shared(binding, *operands, pixels)
    return (*before, *prepare_scale, *prepare_bias, *calls)


def _normalize_pixels(
    binding: Binding, factors: Array, scale: Array, bias: Array, block: _Block
) -> Iterator[Call]:
    yield from _standardized(block, binding.number("epsilon"), binding.scratch, centred=True)
    pixels = block.work.reshape(len(block.work), factors.shape[1], -1)
    factor = factors[block.rows]
    yield partial(np.multiply, scale[block.rows], block.inverse[:, :, None], out=factor)
    yield partial(np.multiply, pixels, factor, out=pixels)
    yield partial(np.add, pixels, bias[block.rows], out=pixels)
    yield from _store(block)


def _per_row(
    binding: Binding, index: int, shape: tuple[int, int, int], dtype: np.dtype[Any]
) -> tuple[Array, tuple[Call, ...]]:
    """A [C] operand repeated for each of the rows [N * groups, C / groups, 1]."""
    array = binding.input(index)
    rows = (-1, array.size)
    return derived(binding, [index], shape, dtype, lambda out: [_copy(out.reshape(rows), array)])


# -- BatchNormalization, LRN -----------------------------------------------------------------------


def _batch_normalization(binding: Binding) -> Calls:
    """Per channel x * factor + shift, where factor = scale / sqrt(var + epsilon)."""
    x, out = binding.input(0), binding.output()
    dtype = _compute_dtype(x)
    channel = (1, -1) + (1,) * (x.ndim - 2)
    shape = (2, x.shape[1])
    fold = partial(_fold_statistics, binding)
    (factor, shift), prepare = derived(binding, range(1, 5), shape, dtype, fold)

    def steps(target: Array, x: Array, factor: Array, shift: Array) -> list[Call]:
        return [
            partial(np.multiply, x, factor, out=target),
            partial(np.add, target, shift, out=target),
        ]

    operands = (x, factor.reshape(channel), shift.reshape(channel))
    return (*prepare, *blocked(steps, out, operands, binding.scratch))


def _fold_statistics(binding: Binding, out: Array) -> list[Call]:
    """Calls for factor = scale / sqrt(var + epsilon), shift = bias - mean * factor."""
    scale, bias, mean, variance = (binding.input(index) for index in range(1, 5))
    factor, shift = out
    epsilon = factor.dtype.type(binding.number("epsilon"))
    return [
        partial(np.add, variance, epsilon, out=factor, casting="same_kind"),
        partial(np.sqrt, factor, out=factor),
        partial(np.divide, scale, factor, out=factor, casting="same_kind"),
        partial(np.multiply, mean, factor, out=shift, casting="same_kind"),
        partial(np.subtract, bias, shift, out=shift, casting="same_kind"),
    ]


def _lrn(binding: Binding) -> Calls:
    """ONNX LRN-13: x / (bias + alpha / size * (squares of neighbouring channels)) ** beta."""
    x, before = as_contiguous(binding, 0)
    out, scratch = binding.output(), binding.scratch
    if x.size == 0:
        return ()
    size, dtype = binding.integer("size"), _compute_dtype(x)
    alpha, bias = (dtype.type(binding.number(name)) for name in ("alpha", "bias"))
    batch, channels, pixels = x.shape[0], x.shape[1], prod(x.shape[2:])
    x, out = (array.reshape(batch, channels, pixels) for array in (x, out))
    step = max(1, _BLOCK // channels)
    mark = scratch.mark()
    calls = list(before)
    for image in range(batch):
        for start in range(0, pixels, step):
            scratch.rewind(mark)
            cut = (image, slice(None), slice(start, start + step))
            part = x[cut]
            squares, sums = (scratch.take(part.shape, dtype) for _ in range(2))
            calls += [
                partial(np.multiply, part, part, out=squares, dtype=dtype),
                *window_sums(squares, sums, size),
                partial(np.multiply, sums, alpha / dtype.type(size), out=sums),
                partial(np.add, sums, bias, out=sums),
                *power(sums, squares, binding.number("beta")),
                partial(np.divide, part, sums, out=out[cut], casting="same_kind"),
            ]
    return tuple(calls)


def window_sums(x: Array, sums: Array, size: int, *, mirrored: bool = False) -> list[Call]:
    """Sums over the ``size`` rows around each row of ``x``, as far as they exist.

    Of an even number, one more is after it (ONNX LRN-13), or ``mirrored``, before it.
    """
    last = len(x) - 1
    fewer, more = min((size - 1) // 2, last), min(size // 2, last)
    below, above = (more, fewer) if mirrored else (fewer, more)
    return [
        partial(np.copyto, sums, x),
        *(partial(np.add, sums[:-k], x[k:], out=sums[:-k]) for k in range(1, above + 1)),
        *(partial(np.add, sums[k:], x[:-k], out=sums[k:]) for k in range(1, below + 1)),
    ]


def power(x: Array, temporary: Array, exponent: float) -> list[Call]:
    """``x ** exponent`` in place; by square roots for 3/4, which nearly every model has."""
    if exponent != 0.75:
        return [partial(np.power, x, x.dtype.type(exponent), out=x)]
    return [
        partial(np.sqrt, x, out=x),
        partial(np.sqrt, x, out=temporary),
        partial(np.multiply, x, temporary, out=x),
    ]


KERNELS: Final[dict[str, Kernel]] = {
    "BatchNormalization": _batch_normalization,
    "GroupNormalization": _normalize_groups,
    "InstanceNormalization": _normalize_groups,
    "LRN": _lrn,
    "LayerNormalization": _normalize_last(centred=True),
    "RMSNormalization": _normalize_last(centred=False),
}
