"""Gradients of Fourier transforms: linear maps, whose adjoints are transforms again.

The adjoint of the transform of n samples, without its factor, is the inverse one without its 1/n.
Between real samples and one half of a spectrum, the elements of that half which stand for two count
twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from popc.autodiff.backward import Backward, GradientRule, no_gradient
from popc.ir import Tensor
from popc.ir.attributes import integer
from popc_runtime.format import DType

__all__ = ["GRADIENTS"]


def _dft(b: Backward) -> Sequence[Tensor | None]:
    x = b.input(0).type
    axis, length = integer(b.attributes, "axis"), integer(b.attributes, "dft_length")
    is_real = x.shape[-1] == 1
    if not integer(b.attributes, "inverse"):
        found = _samples(b, b.grad(), axis, length, is_real=is_real)
    elif integer(b.attributes, "onesided"):
        found = _transform(b, b.grad(), axis, length, onesided=True)
        found = b.mul(found, _multiplicities(b, found, axis, length, 1 / length))
    else:
        found = b.scaled(_transform(b, b.grad(), axis, length), 1 / length)
        found = _real(b, found) if is_real else found
    return [_fitted(b, found, axis, x.shape[axis])]


def _transform(
    b: Backward,
    x: Tensor,
    axis: int,
    length: int,
    *,
    inverse: bool = False,
    onesided: bool = False,
) -> Tensor:
    attributes = {
        "axis": axis,
        "dft_length": length,
        "inverse": int(inverse),
        "onesided": int(onesided),
    }
    return b.emit("DFT", [x], attributes)


def _samples(b: Backward, g: Tensor, axis: int, length: int, *, is_real: bool) -> Tensor:
    """The gradient of ``length`` samples from ``g``, that of their spectrum or its first half."""
    if is_real and g.type.shape[axis] == length // 2 + 1 < length:
        halves = b.div(g, _multiplicities(b, g, axis, length, 1 / length))
        return _transform(b, halves, axis, length, inverse=True, onesided=True)
    whole = _fitted(b, g, axis, length)
    samples = b.scaled(_transform(b, whole, axis, length, inverse=True), length)
    return _real(b, samples) if is_real else samples


def _multiplicities(b: Backward, like: Tensor, axis: int, length: int, factor: float) -> Tensor:
    """The number of elements of the whole spectrum for each of its half, times ``factor``."""
    counts = np.full(length // 2 + 1, 2.0)
    counts[0] = 1
    if length % 2 == 0:
        counts[-1] = 1
    ones = (1,) * (like.type.rank - axis - 1)
    return b.constant((counts * factor).reshape(-1, *ones), like.type.dtype)


def _real(b: Backward, a: Tensor) -> Tensor:
    return b.part(a, a.type.rank - 1, range(1))


def _fitted(b: Backward, a: Tensor, axis: int, size: int) -> Tensor:
    """``a`` with zeros appended, or cut, along ``axis``."""
    ends = [0] * a.type.rank
    ends[axis] = size - a.type.shape[axis]
    return b.pad(a, (0,) * a.type.rank, ends)


def _stft(b: Backward) -> Sequence[Tensor | None]:
    """Through the frames [N, frames, length, 1 or 2], which overlap in the signal."""
    x, window = b.input(0), b.optional(1)
    length = integer(b.attributes, "frame_length")
    frames = _samples(b, b.grad(), 2, length, is_real=x.type.shape[-1] == 1)
    weighted = frames
    if window is not None:
        row = b.reshape(b.cast(window, x.type.dtype), (length, 1))
        weighted = b.mul(frames, row)
    first = _overlapped(b, weighted) if b.wants(0) else None
    second = None
    if b.wants(1) and window is not None:
        total = b.sum(b.mul(frames, _frames(b, frames.type.shape[1])), (0, 1, 3))
        second = b.cast(total, window.type.dtype)
    return [first, second]


def _overlapped(b: Backward, frames: Tensor) -> Tensor:
    """Frames [N, frames, length, C] added up where they lie in the signal [N, L, C]."""
    batch, count, length, parts = frames.type.shape
    columns = b.reshape(b.transpose(frames, (0, 3, 2, 1)), (batch, parts * length, count))
    attributes = {
        "image_shape": (b.input(0).type.shape[1],),
        "block_shape": (length,),
        "strides": (integer(b.attributes, "frame_step"),),
    }
    return b.transpose(b.emit("Col2Im", [columns], attributes), (0, 2, 1))


def _frames(b: Backward, count: int) -> Tensor:
    """The frames [N, frames, length, C] of the signal."""
    starts = np.arange(count)[:, None] * integer(b.attributes, "frame_step")
    places = starts + np.arange(integer(b.attributes, "frame_length"))
    return b.emit("Gather", [b.input(0), b.constant(places, DType.INT32)], {"axis": 1})


GRADIENTS: Final[dict[str, GradientRule]] = {
    "DFT": _dft,
    "MelWeightMatrix": no_gradient,
    "STFT": _stft,
}
