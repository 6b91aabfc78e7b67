"""Fourier transforms, determinants and inverses, ranks, counts, and sums of squares.

Ranks and counts are those of numpy; the rest is computed in double precision, and agrees with
numpy's single precision to about a hundred-thousandth of the largest result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.native import Library
from tests.native.bindings import numpy_results, steady_results

__all__ = ["ANALYSED"]

ANALYSED: Final = frozenset(
    {"BinCount", "Bucketize", "DFT", "Det", "Histogram", "Inverse", "LambSquare", "STFT"}
)


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _check(
    library: Library,
    opcode: str,
    inputs: Sequence[Array | None],
    out: Array,
    attributes: Mapping[str, Any],
    tolerance: float = 0.0,
) -> Array:
    expected = numpy_results(opcode, inputs, [out], attributes)[0]
    (got,) = steady_results(library, opcode, inputs, [out], attributes)
    scale = np.nanmax(np.abs(expected), initial=1e-30)
    np.testing.assert_allclose(got / scale, expected / scale, rtol=0, atol=tolerance)
    return got


@pytest.mark.parametrize("length", [1, 2, 8, 12, 30, 37, 49, 400, 512])
@pytest.mark.parametrize("given", [-3, 0, 5])
@pytest.mark.parametrize(
    ("parts", "inverse", "onesided"), [(1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 1, 0), (2, 1, 1)]
)
def test_fourier_transforms(
    library: Library, parts: int, inverse: int, onesided: int, length: int, given: int
) -> None:
    """Of real and complex numbers; too few are filled up with zeros, too many are left out."""
    half = length // 2 + 1
    size = max((half if inverse and onesided else length) + given, 1)
    results = length if inverse or not onesided else half
    out = np.empty((3, results, 4, 1 if inverse and onesided else 2), np.float32)
    attributes = {"axis": 1, "dft_length": length, "inverse": inverse, "onesided": onesided}
    x = _numbers(3, size, 4, parts)
    wide = np.zeros((3, size, 4, 2 * parts), np.float32)
    wide[..., ::2] = x
    for laid in (x, wide[..., ::2]):
        _check(library, "DFT", [laid], out, attributes, 2e-6)


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize(("parts", "onesided"), [(1, 0), (1, 1), (2, 0)])
def test_spectra_of_frames(library: Library, parts: int, onesided: int, *, windowed: bool) -> None:
    length, step, frames = 24, 7, 9
    bins = length // 2 + 1 if onesided else length
    window = np.hanning(length).astype(np.float32) if windowed else None
    out = np.empty((2, frames, bins, 2), np.float32)
    attributes = {"frame_length": length, "frame_step": step, "onesided": onesided}
    x = _numbers(2, length + step * (frames - 1), parts)
    _check(library, "STFT", [x, window], out, attributes, 2e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 33])
def test_matrices(library: Library, n: int) -> None:
    x = _numbers(4, 2, n, n) + 2 * np.eye(n, dtype=np.float32)
    for laid in (x, x.swapaxes(2, 3)):
        _check(library, "Det", [laid], np.empty((4, 2), np.float32), {}, 1e-4)
        _check(library, "Inverse", [laid], np.empty((4, 2, n, n), np.float32), {}, 1e-3)


def test_singular_matrices(library: Library) -> None:
    x = np.array([[[1, 2], [2, 4]], [[0, 0], [0, 0]], [[0, 1], [1, 0]]], np.float32)
    _check(library, "Det", [x], np.empty(3, np.float32), {}, 1e-6)
    got = _check(library, "Inverse", [x], np.empty((3, 2, 2), np.float32), {}, 1e-6)
    assert np.isnan(got[:2]).all()


@pytest.mark.parametrize("right", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_ranks(library: Library, dtype: str, right: int) -> None:
    x = np.round(_numbers(5, 300) * 4).astype(dtype)
    boundaries = np.sort(np.round(_numbers(9, seed=1) * 4)).astype(dtype)
    if dtype.startswith("float"):
        x[0, :3] = (np.nan, np.inf, -np.inf)
    for laid in (x, np.ascontiguousarray(x.T).T):
        out = np.empty(x.shape, np.int32)
        _check(library, "Bucketize", [laid, boundaries], out, {"right": right})


@pytest.mark.parametrize("count", [3, 8, 9, 100])
def test_counts(library: Library, count: int) -> None:
    x = np.round(_numbers(5, 300) * 4) / 2
    x[0, :3] = (np.nan, np.inf, -np.inf)
    levels = np.sort(np.round(_numbers(count, seed=1) * 4) / 2)
    for laid in (x, np.ascontiguousarray(x.T).T):
        for absolute in (0, 1):
            out = np.empty(count + 1, np.uint32)
            _check(library, "BinCount", [laid, levels], out, {"absolute": absolute})
        out = np.empty(count + 1, np.float32)
        _check(library, "Histogram", [laid], out, {"levels": tuple(map(float, levels))})


@pytest.mark.parametrize("shape", [(1,), (7, 5), (300, 401), ()])
def test_sums_of_all_squares(library: Library, shape: tuple[int, ...]) -> None:
    _check(library, "LambSquare", [_numbers(*shape)], np.empty((), np.float32), {}, 1e-6)
