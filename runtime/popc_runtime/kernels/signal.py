"""Fourier transforms and the mel filter bank."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Calls, Kernel, pure

__all__ = ["KERNELS"]


def _transform(
    source: Array, target: Array, axis: int, length: int, *, inverse: bool, onesided: bool
) -> Callable[[], object]:
    """A discrete Fourier transform between real and complex arrays, chosen by their kinds."""
    function: Callable[..., Any]
    if inverse:
        function = np.fft.irfft if onesided else np.fft.ifft
    elif source.dtype.kind == "c" or not onesided:
        function = np.fft.fft
    else:
        function = np.fft.rfft
    if onesided and not inverse and source.dtype.kind == "c":
        return lambda: np.copyto(target, _first(np.fft.fft(source, length, axis), target, axis))
    return partial(function, source, length, axis, out=target)


def _first(array: Array, like: Array, axis: int) -> Array:
    """The first elements of ``axis``, as many as ``like`` has."""
    return np.moveaxis(np.moveaxis(array, axis, 0)[: like.shape[axis]], 0, axis)


def _complex_of(real: np.dtype[Any]) -> np.dtype[Any]:
    return np.result_type(real, np.complex64)


def _as_signal(array: Array) -> Array:
    """[..., 1] as real numbers, [..., 2] (contiguous) as complex numbers."""
    if array.shape[-1] == 1:
        return array[..., 0]
    return array.view(_complex_of(array.dtype))[..., 0]


def _dft(binding: Binding) -> Calls:
    """ONNX DFT-20; the length is in ``dft_length``, the default resolved by the importer."""
    x, out = binding.input(0), binding.output()
    if out.size == 0:
        return ()
    work = np.result_type(x.dtype, np.float32)
    source, target = x, out
    calls: list[Callable[[], object]] = []
    if x.dtype != work or (x.shape[-1] == 2 and not x.flags.c_contiguous):
        source = binding.scratch.take(x.shape, work)
        calls.append(partial(np.copyto, source, x))
    if out.dtype != work:
        target = binding.scratch.take(out.shape, work)
    calls.append(
        _transform(
            _as_signal(source),
            _as_signal(target),
            binding.integer("axis"),
            binding.integer("dft_length"),
            inverse=bool(binding.integer("inverse")),
            onesided=bool(binding.integer("onesided")),
        )
    )
    if target is not out:
        calls.append(partial(np.copyto, out, target, casting="same_kind"))
    return tuple(calls)


def _stft(binding: Binding) -> Calls:
    """Signal [N, L, 1 or 2] and window [F] to spectra [N, frames, bins, 2] (ONNX STFT-17)."""
    x, window, out = binding.input(0), binding.optional(1), binding.output()
    if out.size == 0:
        return ()
    length, step = binding.integer("frame_length"), binding.integer("frame_step")
    work = np.result_type(x.dtype, np.float32)
    calls: list[Callable[[], object]] = []
    if x.dtype != work or (x.shape[-1] == 2 and not x.flags.c_contiguous):
        wide = binding.scratch.take(x.shape, work)
        calls.append(partial(np.copyto, wide, x))
        x = wide
    signal = _as_signal(x)
    frames = sliding_window_view(signal, length, axis=1)[:, ::step]
    if window is not None:
        weighted = binding.scratch.take(frames.shape, signal.dtype)
        calls.append(partial(np.multiply, frames, window, out=weighted, dtype=signal.dtype))
        frames = weighted
    target = out if out.dtype == work else binding.scratch.take(out.shape, work)
    onesided = bool(binding.integer("onesided"))
    spectra = _as_signal(target)
    calls.append(_transform(frames, spectra, 2, length, inverse=False, onesided=onesided))
    if target is not out:
        calls.append(partial(np.copyto, out, target, casting="same_kind"))
    return tuple(calls)


def _mel_weight_matrix(binding: Binding) -> Array:
    """Triangular filters, evenly spaced on the mel scale: [dft_length // 2 + 1, bins]."""
    bins, length = binding.integer("num_mel_bins"), binding.integer("dft_length")
    rate, low, high = (float(binding.input(index).reshape(())) for index in range(3))
    edges = np.array([low, high])
    mel = 2595 * np.log10(1 + edges / 700)
    points = mel[0] + np.arange(bins + 2) * ((mel[1] - mel[0]) / (bins + 2))
    hertz = 700 * (10 ** (points / 2595) - 1)
    corners = np.floor((length + 1) * hertz / rate)
    left, centre, right = corners[:-2], corners[1:-1], corners[2:]
    row = np.arange(length // 2 + 1, dtype=np.float64)[:, None]
    rising = np.where(left == centre, row == centre, (row - left) / (centre - left))
    falling = (right - row) / (right - centre)
    up = (row >= left) & (row <= centre)
    down = (row >= centre) & (row < right) & (right > centre)
    weights: Array = np.where(down, falling, np.where(up, rising, 0.0))
    return weights


KERNELS: Final[dict[str, Kernel]] = {
    "DFT": _dft,
    "MelWeightMatrix": pure(_mel_weight_matrix),
    "STFT": _stft,
}
