"""Gradient cases of Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final

import numpy as np

from popc_runtime.format import Array
from tests.autodiff.inputs import int64, numbers, pytorch
from tests.support.gradients import Case

__all__ = ["CASES"]


def _dft(*, inverse: int, onesided: int, length: int | None, axis: int) -> Callable[..., Any]:
    def function(x: Any, *_: Any) -> Any:
        fft, real = pytorch().fft, pytorch().view_as_real
        signal = x[..., 0] if x.shape[-1] == 1 else pytorch().view_as_complex(x.contiguous())
        if inverse and onesided:
            return fft.irfft(signal, length, axis)[..., None]
        if onesided and x.shape[-1] == 1:
            return real(fft.rfft(signal, length, axis))
        spectrum = (fft.ifft if inverse else fft.fft)(signal, length, axis)
        if onesided:
            spectrum = spectrum.narrow(axis, 0, spectrum.shape[axis] // 2 + 1)
        return real(spectrum.resolve_conj())

    return function


def _transform(parts: int, inverse: int, onesided: int, length: int | None, axis: int = 1) -> Case:
    x = numbers(2, 6, 3, parts)
    operands = [x, None if length is None else np.array(length), np.array(axis)]
    kind = f"{'inverse' if inverse else 'forward'} {'half' if onesided else 'whole'}"
    return Case(
        "DFT",
        operands,
        {"inverse": inverse, "onesided": onesided},
        name=f"{kind} {parts} {length} {axis}",
        constants=(1, 2),
        torch=_dft(inverse=inverse, onesided=onesided, length=length, axis=axis),
    )


def _spectra(onesided: int) -> Callable[..., Any]:
    def function(x: Any, step: Any, window: Any, length: Any) -> Any:
        signal = x[..., 0] if x.shape[-1] == 1 else pytorch().view_as_complex(x.contiguous())
        frames = signal.unfold(1, int(length), int(step))
        frames = frames if window is None else frames * window
        transform = pytorch().fft.rfft if onesided else pytorch().fft.fft
        return pytorch().view_as_real(transform(frames))

    return function


def _stft(name: str, parts: int, window: Array | None, onesided: int, length: int = 6) -> Case:
    return Case(
        "STFT",
        [numbers(2, 17, parts), np.array(4), window, np.array(length)],
        {"onesided": onesided},
        name=name,
        constants=(1, 3),
        torch=_spectra(onesided),
    )


# ONNX has no one-sided inverse of real numbers.
_KINDS: Final = [it for it in product((1, 2), (0, 1), (0, 1)) if it != (1, 1, 1)]

CASES: Final[list[Case]] = [
    *(_transform(*kind, length) for kind in _KINDS for length in (None, 4, 9)),
    *(_transform(*kind, None, axis=2) for kind in _KINDS),
    _transform(1, 0, 1, 1),
    Case("DFT", [numbers(2, 5, 1)], {"axis": 1, "onesided": 1}, name="opset 17", opset=17),
    _stft("half", 1, numbers(6, seed=1), 1),
    _stft("half, odd", 1, numbers(5, seed=1), 1, length=5),
    _stft("half, no window", 1, None, 1),
    _stft("whole", 1, numbers(6, seed=1), 0),
    _stft("complex", 2, numbers(6, seed=1), 0),
    Case(
        "STFT",
        [numbers(1, 12, 1), np.array(3), np.ones(5), int64(5).reshape(())],
        name="fixed window",
        constants=(1, 2, 3),
    ),
]
