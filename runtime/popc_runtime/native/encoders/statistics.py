"""Fourier transforms, determinants and inverses, ranks, counts, and sums of squares."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from popc_runtime.format.dtypes import DType
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import is_plain, packed, tensors
from popc_runtime.native.encoders.reduce import REDUCTIONS
from popc_runtime.native.record import Encoder, Record, is_float32
from popc_runtime.native.views import View, view_of_numbers

__all__ = ["ENCODERS"]

# The kernel takes as many operations for a number as the largest prime factor of the length.
_MOST_FACTOR: Final = 64


def _has_elements(binding: NativeBinding) -> bool:
    arrays = [view for view in (*binding.inputs, *binding.outputs) if view is not None]
    return is_plain(binding) and all(view.size > 0 for view in arrays)


# -- Fourier transforms ----------------------------------------------------------------------------


def _has_large_factor(length: int) -> bool:
    """True if a length has a prime factor that the kernel is slower for than numpy is."""
    for prime in range(2, _MOST_FACTOR + 1):
        while length > 0 and length % prime == 0:
            length //= prime
    return length != 1


def _dft(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X [..., 1 or 2] {axis, dft_length, inverse, onesided}."""
    del numbers
    if not is_float32(binding) or not _has_elements(binding):
        return None
    x, axis = binding.input(0), binding.integer("axis")
    if _has_large_factor(binding.integer("dft_length")):
        return None
    return _transform(binding, x, None, axis % x.ndim, binding.integer("dft_length"))


def _stft(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Signal [N, L, 1 or 2] and window [F]? {frame_length, frame_step, onesided}."""
    del numbers
    window, length = binding.optional(1), binding.integer("frame_length")
    plain = window is None or window.is_contiguous
    if not is_float32(binding) or not _has_elements(binding) or not plain:
        return None
    x, frames, step = binding.input(0), binding.output().shape[1], binding.integer("frame_step")
    within = step > 0 and (frames - 1) * step + length <= x.shape[1]
    if not within or _has_large_factor(length):
        return None
    batch, along, part = x.strides
    steps = (batch, along * step, along, part)
    cut = x.of_memory((x.shape[0], frames, length, x.shape[2]), steps)
    return _transform(binding, cut, window, 2, length)


def _transform(
    binding: NativeBinding, x: View, window: View | None, axis: int, length: int
) -> Record | None:
    inverse, onesided = binding.integer("inverse", 0), binding.integer("onesided")
    words = (*tensors(x, binding.output(), window), axis, length, inverse, onesided)
    return Record("Fourier_f32", words)


# -- matrices --------------------------------------------------------------------------------------


def _of_matrices(kernel: str, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X [..., n, n]."""
    del numbers
    out = binding.output()
    if not is_float32(binding) or not _has_elements(binding) or not out.is_contiguous:
        return None
    x, before = packed(binding, 0)
    return Record(kernel, tensors(x, out), (x, out), before=before)


# -- ranks and counts ------------------------------------------------------------------------------


def _ranks(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, boundaries {right}."""
    del numbers
    kinds = (DType.FLOAT32, DType.FLOAT64, DType.INT32, DType.INT64)
    out = binding.output()
    if not _has_elements(binding) or binding.input_dtypes[0] not in kinds:
        return None
    if binding.input_dtypes[0] is not binding.input_dtypes[1] or not out.is_contiguous:
        return None
    (x, first), (levels, second) = packed(binding, 0), packed(binding, 1)
    words = (*tensors(x, levels, out), binding.integer("right"))
    return Record("Rank", words, (x, levels, out), before=(*first, *second))


def _bins(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, levels {absolute}: how many are below each level."""
    del numbers
    if binding.input_dtypes[1] is not DType.FLOAT32:
        return None
    levels, before = packed(binding, 1)
    return _counts(binding, levels, before, binding.integer("absolute"), closed=0)


def _histogram(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X {levels}: how many sizes are up to each level."""
    del numbers
    levels = view_of_numbers(binding.numbers("levels"), DType.FLOAT32)
    return _counts(binding, levels, (), 1, closed=1)


def _counts(
    binding: NativeBinding, levels: View, before: tuple[Record, ...], absolute: int, *, closed: int
) -> Record | None:
    out = binding.output()
    plain = is_plain(binding) and binding.input_dtypes[0] is DType.FLOAT32 and out.is_contiguous
    if not plain or binding.input(0).size == 0 or levels.size == 0:
        return None
    x, more = packed(binding, 0)
    words = (*tensors(x, levels, out), absolute, closed)
    return Record("CountLevels_f32", words, (x, levels, out), before=(*before, *more))


def _sum_of_squares(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X: of all elements."""
    del numbers
    x, out = binding.input(0), binding.output()
    if not is_float32(binding) or not _has_elements(binding):
        return None
    single = out.reshape((1,) * x.ndim)
    words = (*tensors(x, single), REDUCTIONS.index("ReduceSumSquare"))
    return Record("Reduce", words, (x, single))


ENCODERS: Final[dict[str, Encoder]] = {
    "BinCount": _bins,
    "Bucketize": _ranks,
    "DFT": _dft,
    "Det": partial(_of_matrices, "Determinant_f32"),
    "Histogram": _histogram,
    "Inverse": partial(_of_matrices, "Inverse_f32"),
    "LambSquare": _sum_of_squares,
    "STFT": _stft,
}
