"""Fourier transforms."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import has_elements, tensors
from popc_runtime.native.record import Encoder, Record, is_float32
from popc_runtime.native.views import View

__all__ = ["ENCODERS"]

# The kernel takes as many operations for a number as the largest prime factor of the length.
_MOST_FACTOR: Final = 64


def _has_large_factor(length: int) -> bool:
    """True if a length has a prime factor that the kernel is slower for than numpy is."""
    for prime in range(2, _MOST_FACTOR + 1):
        while length > 0 and length % prime == 0:
            length //= prime
    return length != 1


def _dft(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X [..., 1 or 2] {axis, dft_length, inverse, onesided}."""
    del numbers
    if not is_float32(binding) or not has_elements(binding):
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
    if not is_float32(binding) or not has_elements(binding) or not plain:
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


ENCODERS: Final[dict[str, Encoder]] = {
    "DFT": _dft,
    "STFT": _stft,
}
