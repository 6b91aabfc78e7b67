"""Normalisation by statistics of the batch, and the gradients of batch normalisation.

Operands are [N, C, pixels].  A few channels at a time, with all images, stay in the cache for the
whole computation; a channel that is too large for that is worked on in pieces, phase by phase.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, Scratch
from popc_runtime.kernels.core.copying import as_contiguous
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.sharing import even_slices, share_count
from popc_runtime.kernels.parts.epilogue import in_float32

__all__ = ["KERNELS"]

_BLOCK: Final = 1 << 16  # elements of one operand that stay in L2, with those of the others
_PASSES: Final = 6  # over each operand: to estimate whether sharing the work is worthwhile


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over the images and pixels of some channels.

    Attributes:
        images: Sums over pixels, [N, channels].
        total: [channels].
    """

    images: Array
    total: Array

    def of(self, x: Array, piece: slice) -> Call:
        """Sum ``x`` [images, channels, pixels] over the pixels."""
        if x.shape[2] == 1:
            return partial(np.copyto, self.images[piece], x[:, :, 0])
        return partial(np.matmul, x, np.ones(x.shape[2], x.dtype), out=self.images[piece])

    def of_product(self, x: Array, y: Array, piece: slice) -> Call:
        """Sum ``x * y`` over the pixels."""
        if x.shape[2] == 1:
            return partial(np.multiply, x[:, :, 0], y[:, :, 0], out=self.images[piece])
        return partial(np.vecdot, x, y, out=self.images[piece])

    def add_up(self) -> Call:
        """Sum over the images."""
        ones = np.ones(len(self.images), self.total.dtype)
        return partial(np.matmul, ones, self.images, out=self.total)


def _planes(array: Array) -> Array:
    return array.reshape(*array.shape[:2], prod(array.shape[2:]))


def _channel_blocks(x: Array) -> list[list[slice]]:
    """The channels of ``x`` in shares, and those in blocks."""
    images, channels, pixels = x.shape
    count = share_count(elements=_PASSES * x.size, most=channels)
    most = max(1, _BLOCK // (images * pixels))
    return [
        [
            slice(share.start + part.start, share.start + part.stop)
            for part in even_slices(length, -(-length // most))
        ]
        for share in even_slices(channels, count)
        for length in [share.stop - share.start]
    ]


def _pieces(x: Array) -> list[slice]:
    """The images of a block, in pieces that stay in the cache."""
    return even_slices(len(x), min(len(x), max(1, x.size // _BLOCK)))


def _column(vector: Array) -> Array:
    """[channels] as it applies to [N, channels, pixels]."""
    return vector[:, None]


# -- forward ---------------------------------------------------------------------------------------


def _training(binding: Binding) -> Calls:
    """X, scale, bias to Y and the batch's mean and variance."""
    x, before = as_contiguous(binding, 0)
    y = binding.optional_output(0)
    out = binding.scratch.take(x.shape, x.dtype) if y is None else y
    statistics = [
        binding.scratch.take((x.shape[1],), x.dtype) if array is None else array
        for array in (binding.optional_output(1), binding.optional_output(2))
    ]
    if x.size == 0:
        return tuple(partial(array.fill, np.nan) for array in statistics)
    chunks = [
        partial(_training_share, binding, _planes(x), _planes(out), statistics, share)
        for share in _channel_blocks(_planes(x))
    ]
    return (*before, *parallel_calls(binding.scratch, chunks))


def _training_share(
    binding: Binding, x: Array, out: Array, statistics: list[Array], blocks: list[slice]
) -> Iterator[Call]:
    mark = binding.scratch.mark()
    scale, bias = binding.input(1), binding.input(2)
    epsilon = x.dtype.type(binding.number("epsilon"))
    for part in blocks:
        binding.scratch.rewind(mark)
        given, target = x[:, part], out[:, part]
        mean, variance = (array[part] for array in statistics)
        yield from _normalize(binding.scratch, given, target, mean, variance)
        factor = binding.scratch.take(mean.shape, x.dtype)
        yield partial(np.add, variance, epsilon, out=factor)
        yield partial(np.sqrt, factor, out=factor)
        yield partial(np.divide, scale[part], factor, out=factor)
        for piece in _pieces(given):
            yield partial(np.multiply, target[piece], _column(factor), out=target[piece])
            yield partial(np.add, target[piece], _column(bias[part]), out=target[piece])


def _normalize(
    scratch: Scratch, x: Array, centred: Array, mean: Array, variance: Array
) -> Iterator[Call]:
    """Subtract the mean.  The variance is computed after that, for the sake of accuracy."""
    images, channels, pixels = x.shape
    sums = _Sums(scratch.take((images, channels), x.dtype), scratch.take((channels,), x.dtype))
    count = x.dtype.type(images * pixels)
    pieces = _pieces(x)
    yield from (sums.of(x[piece], piece) for piece in pieces)
    yield sums.add_up()
    yield partial(np.divide, sums.total, count, out=mean)
    for piece in pieces:
        yield partial(np.subtract, x[piece], _column(mean), out=centred[piece])
        yield sums.of_product(centred[piece], centred[piece], piece)
    yield sums.add_up()
    yield partial(np.divide, sums.total, count, out=variance)


# -- backward --------------------------------------------------------------------------------------


def _gradient(binding: Binding) -> Calls:
    """dY, X, scale, mean, variance to the gradients of X, scale and bias.

    With attribute ``training_mode`` mean and variance are those of X, and depend on it; then

        dX = scale / deviation * (dY - mean of dY - normalized X * mean of (dY * normalized X))
    """
    dy, before = as_contiguous(binding, 0)
    x, more = as_contiguous(binding, 1)
    outputs = [
        binding.scratch.take(shape, dy.dtype) if given is None else given
        for given, shape in zip(binding.outputs, (dy.shape, *[dy.shape[1:2]] * 2), strict=True)
    ]
    if dy.size == 0:
        return tuple(partial(output.fill, 0) for output in outputs[1:])
    operands = (_planes(dy), _planes(x), _planes(outputs[0]))
    chunks = [
        partial(_gradient_share, binding, operands, (outputs[1], outputs[2]), share)
        for share in _channel_blocks(operands[0])
    ]
    return (*before, *more, *parallel_calls(binding.scratch, chunks))


def _gradient_share(
    binding: Binding,
    operands: tuple[Array, Array, Array],
    sums: tuple[Array, Array],
    blocks: list[slice],
) -> Iterator[Call]:
    """Calls that turn dY, X and dX into the gradients of scale and bias."""
    (dy, x, dx), (dscale, dbias) = operands, sums
    mark = binding.scratch.mark()
    training = bool(binding.integer("training_mode"))
    epsilon = dy.dtype.type(binding.number("epsilon"))
    scale, mean, variance = (binding.input(index) for index in range(2, 5))
    for part in blocks:
        binding.scratch.rewind(mark)
        block = _Block(dy[:, part], x[:, part], dx[:, part], _column(mean[part]), binding.scratch)
        inverse = binding.scratch.take(dscale[part].shape, dy.dtype)
        yield partial(np.add, variance[part], epsilon, out=inverse)
        yield partial(np.sqrt, inverse, out=inverse)
        yield partial(np.reciprocal, inverse, out=inverse)
        yield from block.sums(dscale[part], dbias[part])
        yield partial(np.multiply, dscale[part], inverse, out=dscale[part])
        if binding.optional_output(0) is not None:
            coefficients = (scale[part], inverse, dscale[part], dbias[part])
            yield from block.gradient(*coefficients, training=training)


class _Block:
    """Some channels [N, channels, pixels] of dY, X and dX, and the mean of X [channels, 1]."""

    def __init__(self, dy: Array, x: Array, dx: Array, mean: Array, scratch: Scratch) -> None:
        self.dy, self.x, self.dx = dy, x, dx
        self._mean = mean
        self._scratch = scratch
        self._pieces = _pieces(x)
        longest = max(piece.stop - piece.start for piece in self._pieces)
        self._centred = scratch.take((longest, *x.shape[1:]), x.dtype)

    def _centre(self, piece: slice) -> tuple[Array, Call]:
        centred = self._centred[: piece.stop - piece.start]
        return centred, partial(np.subtract, self.x[piece], self._mean, out=centred)

    def sums(self, product: Array, plain: Array) -> Iterator[Call]:
        """Calls for the sums of dY * (X - mean) and of dY."""
        images, channels, _ = self.x.shape
        memory = self._scratch.take((2, images, channels), self.dy.dtype)
        products, sums = _Sums(memory[0], product), _Sums(memory[1], plain)
        for piece in self._pieces:
            centred, centre = self._centre(piece)
            yield centre
            yield products.of_product(centred, self.dy[piece], piece)
            yield sums.of(self.dy[piece], piece)
        yield products.add_up()
        yield sums.add_up()

    def gradient(
        self, scale: Array, inverse: Array, dscale: Array, dbias: Array, *, training: bool
    ) -> Iterator[Call]:
        """dX = factor * dY, and for training + (X - mean) * slope + offset."""
        factor, slope, offset = self._scratch.take((3, len(inverse)), inverse.dtype)
        yield partial(np.multiply, scale, inverse, out=factor)
        if training:
            share = inverse.dtype.type(-len(self.x) * self.x.shape[2])
            yield partial(np.divide, factor, share, out=offset)
            yield partial(np.multiply, offset, dscale, out=slope)
            yield partial(np.multiply, slope, inverse, out=slope)
            yield partial(np.multiply, offset, dbias, out=offset)
        for piece in self._pieces:
            target = self.dx[piece]
            yield partial(np.multiply, self.dy[piece], _column(factor), out=target)
            if training:
                centred, centre = self._centre(piece)
                if len(self._pieces) > 1:
                    yield centre
                yield partial(np.multiply, centred, _column(slope), out=centred)
                yield partial(np.add, target, centred, out=target)
                yield partial(np.add, target, _column(offset), out=target)


KERNELS: Final[dict[str, Kernel]] = {
    "BatchNormalizationGrad": in_float32(_gradient),
    "BatchNormalizationTraining": in_float32(_training),
}
