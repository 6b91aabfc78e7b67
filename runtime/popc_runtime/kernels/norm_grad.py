"""Gradients of normalisation by statistics of a row, a group of channels or a neighbourhood.

With z = (x - mean) * r normalised, r = 1 / deviation, and y = z * scale + bias, the gradients are

    dx = r * (g - mean(g) - z * mean(g * z))    where g = dy * scale
    dscale = sum of dy * z,  dbias = sum of dy

(RMS normalisation has no mean and no mean(g)).  Sums are products of blocks with vectors (BLAS),
and z is never stored: dx = g * r - (x - mean) * r ** 3 * mean(g * (x - mean)) - r * mean(g).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, Scratch
from popc_runtime.kernels.core.copying import as_contiguous
from popc_runtime.kernels.core.derived import derived
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.sharing import even_slices, share_count
from popc_runtime.kernels.norm import power, standardize, window_sums
from popc_runtime.kernels.parts.epilogue import in_float32

__all__ = ["KERNELS"]

_BLOCK: Final = 1 << 16  # elements of one operand that stay in L2, with those of the others
_PASSES: Final = 8  # over the operands: to estimate whether sharing the work is worthwhile


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some rows of dY, X and dX, [rows, length] each, and their statistics [rows, 1], if known."""

    dy: Array
    x: Array
    dx: Array
    mean: Array | None
    inverse: Array | None

    def part(self, rows: slice) -> _Rows:
        """Some of them."""
        mean = None if self.mean is None else self.mean[rows]
        inverse = None if self.inverse is None else self.inverse[rows]
        return _Rows(self.dy[rows], self.x[rows], self.dx[rows], mean, inverse)

    def centred(
        self, scratch: Scratch, epsilon: float, *, centred: bool
    ) -> tuple[list[Call], Array, Array]:
        """X without its mean, 1 / deviation, and the calls that compute them."""
        if self.inverse is not None and self.mean is not None:
            work = scratch.take(self.x.shape, self.x.dtype)
            return [partial(np.subtract, self.x, self.mean, out=work)], work, self.inverse
        mean, inverse = (scratch.take((len(self.x), 1), self.x.dtype) for _ in range(2))
        work = scratch.take(self.x.shape, self.x.dtype) if centred else self.x
        calls = standardize(self.x, work, mean, inverse, epsilon, scratch, centred=centred)
        return calls, work, inverse


def _shares(rows: _Rows, most: int) -> list[list[_Rows]]:
    """``rows`` in shares, and those in blocks."""
    count = share_count(elements=_PASSES * rows.x.size, most=most)
    shares = [rows.part(share) for share in even_slices(len(rows.x), count)]
    step = max(1, _BLOCK // rows.x.shape[1])
    return [
        [share.part(block) for block in even_slices(len(share.x), -(-len(share.x) // step))]
        for share in shares
    ]


def _output(binding: Binding, index: int, shape: tuple[int, ...], dtype: Any) -> Array:
    """An output, or memory in its place if it is not wanted."""
    given = binding.optional_output(index)
    return binding.scratch.take(shape, dtype) if given is None else given


def _contiguous(binding: Binding, index: int) -> tuple[Array | None, tuple[Call, ...]]:
    """An operand that may be absent, contiguous, and the calls that fill it."""
    return (None, ()) if binding.optional(index) is None else as_contiguous(binding, index)


# -- LayerNormalization, RMSNormalization ----------------------------------------------------------


def _layer(*, centred: bool) -> Kernel:
    """dY, X, scale?, mean?, 1 / deviation? to the gradients of X, scale and (centred) bias."""

    def kernel(binding: Binding) -> Calls:
        (dy, first), (x, second) = (as_contiguous(binding, index) for index in range(2))
        (scale, third), (mean, fourth), (inverse, fifth) = (
            _contiguous(binding, index) for index in (2, 3, 4)
        )
        axis = binding.integer("axis")
        shape = (prod(x.shape[:axis]), prod(x.shape[axis:]))
        dx = _output(binding, 0, x.shape, x.dtype)
        sums = [array for array in binding.outputs[1:] if array is not None]
        if x.size == 0:
            return tuple(partial(array.fill, 0) for array in sums)
        column = (shape[0], 1)
        weights = np.ones(shape[1], x.dtype) if scale is None else scale.reshape(-1)
        rows = _Rows(
            dy.reshape(shape),
            x.reshape(shape),
            dx.reshape(shape),
            None if mean is None else mean.reshape(column),
            None if inverse is None else inverse.reshape(column),
        )
        shares = _shares(rows, shape[0])
        totals = binding.scratch.take((len(shares), 1 + centred, shape[1]), x.dtype)
        chunks = [
            partial(_layer_share, binding, share, weights, total, centred=centred)
            for share, total in zip(shares, totals, strict=True)
        ]
        calls = parallel_calls(binding.scratch, chunks)
        added = (partial(np.add, totals[0], other, out=totals[0]) for other in totals[1:])
        stores = [
            partial(np.copyto, array.reshape(-1), totals[0, number])
            for number, array in enumerate(binding.outputs[1:])
            if array is not None
        ]
        return (*first, *second, *third, *fourth, *fifth, *calls, *added, *stores)

    return kernel


def _layer_share(
    binding: Binding, blocks: Sequence[_Rows], weights: Array, total: Array, *, centred: bool
) -> Iterator[Call]:
    """The gradients of some rows, and their sums in ``total``: of dY * Z, and (centred) of dY."""
    scratch = binding.scratch
    mark = scratch.mark()
    for number, block in enumerate(blocks):
        scratch.rewind(mark)
        calls, work, inverse = block.centred(scratch, binding.number("epsilon"), centred=centred)
        yield from calls
        product = scratch.take(work.shape, work.dtype)
        yield partial(np.multiply, work, block.dy, out=product)
        sums = total if number == 0 else scratch.take(total.shape, total.dtype)
        yield partial(np.matmul, inverse.T, product, out=sums[:1])
        if centred:
            ones = np.ones((1, len(work)), work.dtype)
            yield partial(np.matmul, ones, block.dy, out=sums[1:])
        if number:
            yield partial(np.add, total, sums, out=total)
        if binding.optional_output(0) is not None:
            yield from _layer_data(
                scratch, block, (work, product), inverse, weights, centred=centred
            )


def _layer_data(
    scratch: Scratch,
    block: _Rows,
    work: tuple[Array, Array],
    inverse: Array,
    weights: Array,
    *,
    centred: bool,
) -> Iterator[Call]:
    """dX; ``work`` is X - mean, and the product of that with dY."""
    x, product = work
    dy, dx, length = block.dy, block.dx, x.dtype.type(x.shape[1])
    slope, offset = (scratch.take((len(x), 1), x.dtype) for _ in range(2))
    yield partial(np.matmul, product, weights, out=slope[:, 0])
    if centred:
        yield partial(np.matmul, dy, weights, out=offset[:, 0])
        yield partial(np.divide, offset, length, out=offset)
    yield partial(np.divide, slope, length, out=slope)
    for _ in range(2):
        yield partial(np.multiply, slope, inverse, out=slope)
    yield partial(np.multiply, x, slope, out=product)
    yield partial(np.multiply, dy, weights, out=dx)
    if centred:
        yield partial(np.subtract, dx, offset, out=dx)
    yield partial(np.subtract, dx, product, out=dx)
    yield partial(np.multiply, dx, inverse, out=dx)


# -- InstanceNormalization, GroupNormalization -----------------------------------------------------


def _groups(binding: Binding) -> Calls:
    """dY, X, scale to the gradients of X, scale and bias; rows are groups of channels."""
    (dy, first), (x, second) = (as_contiguous(binding, index) for index in range(2))
    channels = x.shape[1]
    dx = _output(binding, 0, x.shape, x.dtype)
    sums = [_output(binding, index, (channels,), x.dtype) for index in (1, 2)]
    if x.size == 0:
        return tuple(partial(array.fill, 0) for array in sums)
    groups = binding.integer("num_groups", channels)
    shape = (x.shape[0] * groups, x.size // (x.shape[0] * groups))
    width = (shape[0], channels // groups)
    scale, prepare = derived(
        binding,
        [2],
        width,
        x.dtype,
        lambda out: [partial(np.copyto, out.reshape(-1, channels), binding.input(2))],
    )
    products = binding.scratch.take((2, *width), x.dtype)
    rows = _Rows(dy.reshape(shape), x.reshape(shape), dx.reshape(shape), None, None)
    chunks: list[Any] = []
    start = 0
    for share in _shares(rows, shape[0]):
        stop = start + sum(len(block.x) for block in share)
        chunks.append(
            partial(_group_share, binding, share, scale[start:stop], products[:, start:stop])
        )
        start = stop
    ones = np.ones(x.shape[0], x.dtype)
    totals = (
        partial(np.matmul, ones, product.reshape(-1, channels), out=total)
        for product, total in zip(products, sums, strict=True)
    )
    calls = parallel_calls(binding.scratch, chunks)
    return (*first, *second, *prepare, *calls, *totals)


def _group_share(
    binding: Binding, blocks: Sequence[_Rows], scale: Array, sums: Array
) -> Iterator[Call]:
    """The gradients of some rows, and in ``sums``, for each channel, those of dY * Z and of dY."""
    scratch = binding.scratch
    mark = scratch.mark()
    start = 0
    for block in blocks:
        scratch.rewind(mark)
        part = slice(start, start + len(block.x))
        start = part.stop
        calls, work, inverse = block.centred(scratch, binding.number("epsilon"), centred=True)
        yield from calls
        factors = scale[part]
        shape = (*factors.shape, work.shape[1] // factors.shape[1])
        dy, x, dx = (array.reshape(shape) for array in (block.dy, work, block.dx))
        products, plain = sums[0, part], sums[1, part]
        yield partial(np.vecdot, dy, x, out=products)
        yield partial(np.matmul, dy, np.ones(shape[2], dy.dtype), out=plain)
        yield partial(np.multiply, products, inverse, out=products)
        if binding.optional_output(0) is None:
            continue
        slope, offset = (scratch.take((len(x), 1), x.dtype) for _ in range(2))
        factor = scratch.take(factors.shape, x.dtype)
        share = x.dtype.type(-1 / work.shape[1])
        for target, summed in ((slope, products), (offset, plain)):
            yield partial(np.vecdot, summed, factors, out=target[:, 0])
            yield partial(np.multiply, target, share, out=target)
            yield partial(np.multiply, target, inverse, out=target)
        yield partial(np.multiply, slope, inverse, out=slope)
        yield partial(np.multiply, factors, inverse, out=factor)
        yield partial(np.multiply, work, slope, out=work)
        yield partial(np.add, work, offset, out=work)
        yield partial(np.multiply, dy, factor[:, :, None], out=dx)
        yield partial(np.add, block.dx, work, out=block.dx)


# -- LRN -------------------------------------------------------------------------------------------


def _lrn(binding: Binding) -> Calls:
    """dY and X to dX.

    With s = bias + alpha / size * (sum of x ** 2 over neighbours), y = x * s ** -beta and

        dx = dy * s ** -beta - 2 * alpha * beta / size * x * (sum of dy * x * s ** (-beta - 1))

    where the sum is over those whose neighbour x is.
    """
    (dy, first), (x, second) = (as_contiguous(binding, index) for index in range(2))
    dx = binding.output()
    if x.size == 0:
        return ()
    shape = (*x.shape[:2], prod(x.shape[2:]))
    operands = [array.reshape(shape) for array in (dy, x, dx)]
    images = even_slices(shape[0], share_count(elements=_PASSES * x.size, most=shape[0]))
    chunks = [partial(_lrn_share, binding, *(array[part] for array in operands)) for part in images]
    return (*first, *second, *parallel_calls(binding.scratch, chunks))


def _lrn_share(binding: Binding, dy: Array, x: Array, dx: Array) -> Iterator[Call]:
    scratch, size = binding.scratch, binding.integer("size")
    alpha, beta, bias = (binding.number(name) for name in ("alpha", "beta", "bias"))
    number = x.dtype.type
    images, channels, pixels = x.shape
    step = max(1, _BLOCK // channels)
    mark = scratch.mark()
    for image in range(images):
        for start in range(0, pixels, step):
            scratch.rewind(mark)
            cut = (image, slice(None), slice(start, start + step))
            grad, part, out = dy[cut], x[cut], dx[cut]
            sums, work, spare = (scratch.take(part.shape, x.dtype) for _ in range(3))
            yield partial(np.multiply, part, part, out=work)
            yield from window_sums(work, sums, size)
            yield partial(np.multiply, sums, number(alpha / size), out=sums)
            yield partial(np.add, sums, number(bias), out=sums)
            yield partial(np.copyto, work, sums)
            yield from power(work, spare, beta)
            yield partial(np.divide, grad, work, out=out)
            yield partial(np.multiply, out, part, out=work)
            yield partial(np.divide, work, sums, out=work)
            yield from window_sums(work, sums, size, mirrored=True)
            yield partial(np.multiply, sums, number(-2 * alpha * beta / size), out=sums)
            yield partial(np.multiply, sums, part, out=sums)
            yield partial(np.add, out, sums, out=out)


KERNELS: Final[dict[str, Kernel]] = {
    "GroupNormalizationGrad": in_float32(_groups),
    "InstanceNormalizationGrad": in_float32(_groups),
    "LRNGrad": in_float32(_lrn),
    "LayerNormalizationGrad": in_float32(_layer(centred=True)),
    "RMSNormalizationGrad": in_float32(_layer(centred=False)),
}
