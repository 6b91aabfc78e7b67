"""Pooling of every kind: places of maxima, integers, norms, and values put back.

Maxima and places are those of numpy, to the bit; norms agree to a hundred-thousandth.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array
from popc_runtime.kernels.parts.windows import WindowAxis
from popc_runtime.native import Library, NativeFailure, find_library
from tests.native.bindings import native_results, numpy_results, steady_results

__all__ = ["POOLED"]

POOLED: Final = frozenset({"LpPool", "MaxUnpool"})


def _numbers(*shape: int, dtype: str = "float32") -> Array:
    values = np.random.default_rng(0).standard_normal(shape) * 4
    return np.round(values).astype(dtype) if dtype != "uint8" else np.abs(values).astype(dtype)


def _window(data: st.DataObject) -> tuple[list[int], list[int], dict[str, Any]]:
    """Sizes, results and attributes of windows that each see an element."""
    rank = data.draw(st.integers(1, 3), label="rank")
    taps: list[int] = []
    strides, dilations, before, after, sizes, results = (taps.copy() for _ in range(6))
    for _ in range(rank):
        taps.append(data.draw(st.integers(1, 4), label="taps"))
        strides.append(data.draw(st.integers(1, 3), label="stride"))
        dilations.append(data.draw(st.integers(1, 2), label="dilation"))
        before.append(data.draw(st.integers(0, taps[-1] - 1), label="before"))
        after.append(data.draw(st.integers(0, taps[-1] - 1), label="after"))
        reach = (taps[-1] - 1) * dilations[-1] + 1
        sizes.append(reach + data.draw(st.integers(0, 12), label="size"))
        results.append((sizes[-1] + before[-1] + after[-1] - reach) // strides[-1] + 1)
    attributes = {
        "kernel_shape": tuple(taps),
        "strides": tuple(strides),
        "dilations": tuple(dilations),
        "pads": (*before, *after),
    }
    return sizes, results, attributes


@given(
    st.integers(1, 9), st.integers(1, 12), st.integers(1, 4), st.integers(1, 4),
    st.integers(-2, 9), st.integers(1, 6),
)  # fmt: skip
def test_taps_in_the_padding_are_left_out(
    size: int, kernel: int, stride: int, dilation: int, begin: int, out: int
) -> None:
    axis = WindowAxis(size, kernel, stride, dilation, begin, 0, out)
    assert axis.used.kernel <= kernel
    assert _elements(axis.used) == _elements(axis)


def _elements(axis: WindowAxis) -> set[tuple[int, int]]:
    """Each window, with each element of the input that it has."""
    places = itertools.product(range(axis.out), range(axis.kernel))
    reads = ((o, o * axis.stride + k * axis.dilation - axis.begin) for o, k in places)
    return {(window, element) for window, element in reads if 0 <= element < axis.size}


@pytest.mark.parametrize("opcode", ["AveragePool", "MaxPool"])
def test_windows_larger_than_images(opcode: str) -> None:
    attributes = {"kernel_shape": (300, 299), "pads": (1, 0, 0, 2), "strides": (300, 300)}
    outputs = [np.empty((2, 3, 1, 1), np.float32)]
    _check(opcode, _numbers(2, 3, 2, 4), outputs, attributes, 1e-6)


def _check(
    opcode: str, x: Array, outputs: list[Array], attributes: dict[str, Any], tolerance: float
) -> None:
    library = find_library()
    if library is None:
        pytest.skip("there are no native kernels")
    expected = numpy_results(opcode, [x], outputs, attributes)
    for threads in (1, 2):
        got = native_results(library, opcode, [x], outputs, attributes, (), threads)
        assert got is not None, f"{opcode} has no native form here"
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_maxima_of_pixels(data: st.DataObject) -> None:
    """Results whose channels lie side by side; operands of any layout, or NaN."""
    sizes, results, attributes = _window(data)
    dtype = data.draw(st.sampled_from(["uint8", "int8", "float64", "float32"]), label="type")
    channels = data.draw(st.sampled_from([2, 3, 20, 70]), label="channels")
    x = _numbers(2, channels, *sizes, dtype=dtype)
    if dtype.startswith("float"):
        x.flat[:: data.draw(st.integers(5, 99), label="apart")] = np.nan
    if data.draw(st.booleans(), label="channels last"):
        x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    out = np.moveaxis(np.empty((2, *results, channels), dtype), -1, 1)
    _check("MaxPool", x, [out], attributes, 0)


@pytest.mark.parametrize("channels", [8, 15, 16, 17, 40, 64, 99])
@pytest.mark.parametrize(("taps", "stride"), [((1, 1), 1), ((2, 2), 2), ((3, 3), 1), ((5, 4), 2)])
@pytest.mark.parametrize("special", [0, np.nan, np.inf, -np.inf])
def test_maxima_of_channels(
    library: Library, channels: int, taps: tuple[int, int], stride: int, special: float
) -> None:
    """Each channel with another special element, and a line of nothing else."""
    x = np.moveaxis(_numbers(2, 9, 11, channels), 3, 1)
    for channel in range(channels):
        x[0, channel].flat[channel] = special
    x[1, :, 4] = special
    pads = [tap // 2 for tap in taps]
    sizes = [(n + 2 * p - t) // stride + 1 for n, t, p in zip((9, 11), taps, pads, strict=True)]
    out = np.moveaxis(np.empty((2, *sizes, channels), np.float32), 3, 1)
    attributes = {"kernel_shape": taps, "strides": (stride, stride), "pads": (*pads, *pads)}
    expected = numpy_results("MaxPool", [x], [out], attributes)[0]
    for threads in (1, 2):
        got = native_results(library, "MaxPool", [x], [out], attributes, (), threads)
        assert got is not None
        np.testing.assert_array_equal(got[0], expected)


@pytest.mark.parametrize("opcode", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("special", [0, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("taps", [2, 3, 5])
def test_planes(opcode: str, taps: int, stride: int, special: float) -> None:
    """Squares over planes of any width, with one special element in each or none."""
    rng = np.random.default_rng([taps, stride])
    for width in (1, 8, 15, 17, 33, 64, 67, 130):
        pads = rng.integers(0, taps, 4).tolist()
        sizes = [int(rng.integers(taps, 20)), max(width, taps)]
        x = _numbers(2, 3, sizes[0], sizes[1] + 3)[..., 2:-1]
        x[0, :2].flat[:: 1 + int(rng.integers(sizes[0] * sizes[1]))] = special
        results = [(sizes[i] + pads[i] + pads[i + 2] - taps) // stride + 1 for i in range(2)]
        attributes = {"kernel_shape": (taps,) * 2, "strides": (stride,) * 2, "pads": tuple(pads)}
        out = np.empty((2, 3, *results), np.float32)
        _check(opcode, x, [out], attributes, 1e-5 if opcode == "AveragePool" else 0)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_pools_by_rows(data: st.DataObject) -> None:
    sizes, results, attributes = _window(data)
    dtype = data.draw(st.sampled_from(["float32", "uint8", "int8", "float64"]), label="type")
    x = _numbers(2, 3, *sizes, dtype=dtype)
    if data.draw(st.booleans(), label="channels last"):
        x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    out = np.empty((2, 3, *results), dtype)
    _check("MaxPool", x, [out], attributes, 0)
    if dtype == "float32":
        by_column = data.draw(st.integers(0, 1), label="by column")
        places = np.empty(out.shape, np.int64)
        _check("MaxPool", x, [out, places], {**attributes, "storage_order": by_column}, 0)
        power = data.draw(st.integers(1, 4), label="power")
        _check("LpPool", x, [out], {**attributes, "p": power}, 1e-5)


def test_places_of_halves(library: Library) -> None:
    x = _numbers(2, 3, 9, 8, dtype="float16")
    outputs: list[Array] = [np.empty((2, 3, 4, 4), np.float16), np.empty((2, 3, 4, 4), np.int64)]
    attributes = {"kernel_shape": (2, 2), "strides": (2, 2)}
    expected = numpy_results("MaxPool", [x], outputs, attributes)
    got = native_results(library, "MaxPool", [x], outputs, attributes)
    assert got is not None
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8", "int64"])
def test_values_put_back(library: Library, dtype: str) -> None:
    x = _numbers(2, 2, 3, 4, dtype=dtype)
    indices = np.random.default_rng(1).permutation(400)[: x.size].reshape(x.shape)
    out = np.empty((2, 2, 10, 10), dtype)
    for given_x in (x, np.ascontiguousarray(x.T).T):
        expected = numpy_results("MaxUnpool", [given_x, indices], [out], {})
        got = native_results(library, "MaxUnpool", [given_x, indices], [out], {})
        assert got is not None
        np.testing.assert_array_equal(got[0], expected[0])
    with pytest.raises(NativeFailure, match="out of range"):
        native_results(library, "MaxUnpool", [x, indices + 399], [out], {})


@pytest.mark.parametrize("strays", [0, 1, 30])
@pytest.mark.parametrize("plane", [(1, 2), (5, 7), (33, 31)])
def test_the_last_of_several_values_is_put_back(
    library: Library, plane: tuple[int, int], strays: int
) -> None:
    """Most of them in their own plane, some counted from the end; some leave that plane."""
    random = np.random.default_rng(strays)
    x = _numbers(3, 40, *plane)
    planes, elements = 3 * 40, 4 * plane[0] * plane[1]
    out = np.empty((3, 40, 2 * plane[0], 2 * plane[1]), np.float32)
    own = np.arange(planes)[:, None] * elements
    indices = (own + random.integers(0, elements, (planes, x.size // planes))).reshape(-1)
    indices[random.integers(0, x.size, strays)] = random.integers(0, out.size, strays)
    indices[random.random(x.size) < 0.1] -= out.size
    wanted = np.zeros(out.size, np.float32)
    for index, value in zip(indices, x.reshape(-1), strict=True):
        wanted[index] = value
    (got,) = steady_results(library, "MaxUnpool", [x, indices.reshape(x.shape)], [out], {})
    np.testing.assert_array_equal(got, wanted.reshape(out.shape))


_AXIS = st.builds(
    WindowAxis,
    *(st.integers(1, 40), st.integers(1, 6), st.integers(1, 4), st.integers(1, 5)),
    *(st.integers(-5, 12), st.integers(-3, 12), st.integers(0, 60)),
)


@given(_AXIS, st.sampled_from(["padding", "none"]))
def test_sizes_of_windows(axis: WindowAxis, included: str) -> None:
    """As counted tap by tap."""
    include = included == "padding"
    low, high = (-axis.begin, axis.size + axis.end) if include else (0, axis.size)
    starts = range(-axis.begin, axis.out * axis.stride - axis.begin, axis.stride)
    taps = range(0, axis.extent, axis.dilation)
    expected = [sum(low <= start + tap < high for tap in taps) for start in starts]
    pairs = axis.counts(include_padding=include)
    assert [size for size, times in pairs for _ in range(times)] == expected


def test_sizes_of_many_windows_are_counted_at_once() -> None:
    axis = WindowAxis(size=1 << 40, kernel=3, begin=1, end=1, out=1 << 40)
    assert axis.counts(include_padding=False) == [(2, 1), (3, (1 << 40) - 2), (2, 1)]
