"""Convolutions and pooling of the sizes at which their native kernels change their ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.native import Library, NativeProgram
from popc_runtime.native.algorithms import direct_wins
from popc_runtime.native.encoders import conv
from tests.native.bindings import bound, encode, native_results, numpy_results, steady_results


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _convolve(
    library: Library,
    x: Array,
    w: Array,
    group: int,
    strides: Sequence[int],
    pads: Sequence[int],
    activation: str = "Relu",
    constant: tuple[int, ...] = (1, 2),
) -> None:
    rank = x.ndim - 2
    sizes = [
        (x.shape[2 + i] + pads[i] + pads[i + rank] - w.shape[2 + i]) // strides[i] + 1
        for i in range(rank)
    ]
    out = np.empty((len(x), len(w), *sizes), np.float32)
    inputs = [x, w, _numbers(len(w), seed=2), _numbers(*out.shape, seed=3)]
    attributes = {
        "strides": tuple(strides),
        "dilations": (1,) * rank,
        "pads": tuple(pads),
        "group": group,
        "activation": activation,
    }
    expected = numpy_results("Conv", inputs, [out], attributes, constant)[0]
    (got,) = steady_results(library, "Conv", inputs, [out], attributes, constant, most_threads=3)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("constant", [(), (1, 2)])
@pytest.mark.parametrize(
    ("x", "w", "group", "strides", "pads"),
    [
        ((1, 128, 7, 7), (130, 128, 3, 3), 1, (1, 1), (1, 1, 1, 1)),
        ((2, 96, 14, 14), (64, 96, 3, 3), 1, (2, 2), (1, 1, 1, 1)),
        ((1, 512, 5, 13), (60, 512, 1, 1), 1, (1, 1), (0, 0, 0, 0)),
        ((1, 600, 4, 4), (50, 300, 2, 2), 2, (1, 1), (0, 0, 0, 0)),
        ((3, 40, 200), (70, 40, 5), 1, (2,), (2, 1)),
    ],
)
def test_many_channels_and_few_pixels(
    library: Library,
    x: tuple[int, ...],
    w: tuple[int, ...],
    group: int,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    constant: tuple[int, ...],
) -> None:
    _convolve(
        library, _numbers(*x), _numbers(*w, seed=1) / 16, group, strides, pads, "Relu", constant
    )


@pytest.mark.parametrize("constant", [(), (1, 2)])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (4, 4), (7, 7), (8, 8), (5, 17), (9, 32)])
@pytest.mark.parametrize("taps", [(3, 3), (1, 4), (5, 2)])
def test_many_narrow_images(
    library: Library,
    taps: tuple[int, int],
    size: tuple[int, int],
    stride: int,
    group: int,
    constant: tuple[int, ...],
) -> None:
    x, w = _numbers(9, 5 * group, *size), _numbers(17 * group, 5, *taps, seed=1)
    pads = (taps[0] // 2, taps[1] // 2) * 2
    if min(extent + 2 * pad - tap for extent, pad, tap in zip(size, pads, taps, strict=False)) >= 0:
        _convolve(library, x, w, group, (stride, stride), pads, "Relu", constant)


@pytest.mark.parametrize("direct", [False, True])
def test_many_narrow_images_of_many_channels(
    library: Library, monkeypatch: pytest.MonkeyPatch, *, direct: bool
) -> None:
    monkeypatch.setattr(conv, "direct_wins", lambda *_: direct)
    x, w = _numbers(10, 200, 4, 4), _numbers(70, 200, 3, 3, seed=1) / 20
    _convolve(library, x, w, 1, (1, 1), (1, 1, 1, 1))
    attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1), "group": 1}
    all_at_once, one = (
        native_results(library, "Conv", [images, w], [np.empty_like(images[:, :70])], attributes)
        for images in (x, x[:1])
    )
    assert all_at_once is not None
    assert one is not None
    assert all_at_once[0][0].tobytes() == one[0][0].tobytes()


@pytest.mark.parametrize("constant", [(), (1, 2)])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    ("channels", "taps", "width"),
    [
        (16, 3, 7),
        (16, 3, 8),
        (15, 3, 7),
        (40, 5, 31),
        (17, 7, 64),
        (33, 7, 4),
        (33, 7, 3),
        (20, 4, 9),
    ],
)
def test_channels_of_their_own(
    library: Library,
    channels: int,
    taps: int,
    width: int,
    stride: int,
    constant: tuple[int, ...],
) -> None:
    """Depthwise convolutions of planes, which are turned where lines are short."""
    pads = (taps // 2,) * 2 + ((taps - 1) // 2,) * 2
    x, w = _numbers(2, channels, 9, (width - 1) * stride + 1), _numbers(channels, 1, taps, taps)
    _convolve(library, x, w, channels, (stride, stride), pads, "HardSwish", constant)


_LAID: Final[dict[str, Callable[[Array], Array]]] = {
    "whole": lambda x: x,
    "part of lines": lambda x: np.pad(x, ((0, 0), (0, 0), (0, 0), (3, 5)))[..., 3:-5],
    "every other image": lambda x: np.repeat(x, 2, axis=0)[::2],
    "channels backwards": lambda x: x[:, ::-1].copy()[:, ::-1],
    "lines upside down": lambda x: x[:, :, ::-1].copy()[:, :, ::-1],
    "the same channel": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "spread": lambda x: np.repeat(x, 2, axis=3)[..., ::2],
    "transposed": lambda x: x.swapaxes(2, 3).copy().swapaxes(2, 3),
}


@pytest.mark.parametrize("laid", _LAID)
@pytest.mark.parametrize("taps", [3, 5, 7])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (1, 5), (2, 2)])
@pytest.mark.parametrize("outputs", [1, 2])
def test_planes_of_any_size(
    library: Library, outputs: int, stride: int, dilation: int, taps: int, laid: str
) -> None:
    """Depthwise windows over planes, whatever is cut off at their sides."""
    rng = np.random.default_rng([taps, stride, dilation, outputs])
    reach = (taps - 1) * dilation + 1
    w, bias = _numbers(3 * outputs, 1, taps, taps, seed=1), _numbers(3 * outputs, seed=2)
    for activation in ("", "Relu", "HardSwish", "Gelu"):
        pads = rng.integers(0, 2 * taps, 4).tolist()
        height, width = rng.integers(1, 19), rng.choice([1, 8, 15, 16, 17, 31, 33, 63, 64, 66, 131])
        sizes = [max(int(height), reach), max(int(width), reach)]
        x = _LAID[laid](_numbers(2, 3, *sizes))
        results = [(sizes[i] + pads[i] + pads[i + 2] - reach) // stride + 1 for i in range(2)]
        out = np.empty((2, len(w), *results), np.float32)
        attributes = {
            "strides": (stride,) * 2,
            "dilations": (dilation,) * 2,
            "pads": tuple(pads),
            "group": 3,
            "activation": activation,
        }
        inputs = [x, w, bias, _numbers(*out.shape, seed=3)]
        expected = numpy_results("Conv", inputs, [out], attributes)[0]
        (got,) = steady_results(library, "Conv", inputs, [out], attributes, (), most_threads=3)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("taps", [3, 5])
@pytest.mark.parametrize("width", [9, 16, 24, 33, 70])
def test_planes_added_in_place(library: Library, width: int, taps: int, stride: int) -> None:
    """The result takes the place of what is added: nothing of it is written before it is read."""
    x, w = _numbers(2, 5, 11 * stride, width * stride), _numbers(5, 1, taps, taps, seed=1)
    added = _numbers(2, 5, 11, width, seed=3)
    pads = ((taps - 1) // 2, (taps - 1) // 2) * 2
    attributes = {"strides": (stride,) * 2, "dilations": (1, 1), "pads": pads, "group": 5}
    expected = numpy_results("Conv", [x, w, None, added.copy()], [added], attributes)[0]
    binding = bound([x, w, None, added], [added], attributes)
    record = encode("Conv", binding, library.numbers)
    assert record is not None
    NativeProgram(library, [record], binding, 2).run()
    np.testing.assert_allclose(added, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("constant", [(), (1, 2)])
@pytest.mark.parametrize("batch", [1, 9])
@pytest.mark.parametrize(
    ("channels", "filters", "width", "taps", "stride"),
    [
        *((1, 258, 640, 256, 128), (129, 128, 4, 3, 1), (128, 64, 4, 3, 2), (64, 128, 1, 3, 1)),
        *((192, 48, 20, 3, 1), (171, 17, 50, 3, 1)),  # lanes of two or four vectors stay empty
    ],
)
def test_lines_of_few_pixels(
    library: Library,
    channels: int,
    filters: int,
    width: int,
    taps: int,
    stride: int,
    batch: int,
    constant: tuple[int, ...],
) -> None:
    x, w = _numbers(batch, channels, width), _numbers(filters, channels, taps, seed=1) / 8
    pads = (1, 1) if taps == 3 else (0, 0)
    result = (width + sum(pads) - taps) // stride + 1
    assert direct_wins(w.shape, (batch, filters, result), (stride,))
    _convolve(library, x, w, 1, (stride,), pads, "Relu", constant)


@pytest.mark.parametrize("activation", ["", "Relu", "Gelu"])
@pytest.mark.parametrize("width", [1, 8, 15, 16, 17, 31, 32, 33, 48, 65, 130])
def test_results_of_any_width(library: Library, width: int, activation: str) -> None:
    x, w = _numbers(1, 5, 3, width + 2), _numbers(13, 5, 2, 3, seed=1)
    _convolve(library, x, w, 1, (1, 1), (0, 0, 0, 0), activation)
    narrow = _numbers(1, 6, width)
    _convolve(library, narrow, _numbers(14, 6, 1, seed=1), 1, (1,), (0, 0), activation)


@pytest.mark.parametrize("activation", ["", "Relu", "Clip"])
@pytest.mark.parametrize("filters", [1, 5, 12, 13, 47, 96, 97, 130])
@pytest.mark.parametrize("width", [31, 32, 70])
def test_results_of_any_number(library: Library, width: int, filters: int, activation: str) -> None:
    """Tiles of few and of many rows, whose windows are read from lines or collected."""
    x, w = _numbers(2, 3, 5, width), _numbers(filters, 3, 3, 3, seed=1)
    _convolve(library, x, w, 1, (1, 1), (1, 1, 1, 1), activation)
    wide = _numbers(1, 520, 1, width)
    _convolve(library, wide, _numbers(filters, 520, 1, 1, seed=1), 1, (1, 1), (0, 0, 0, 0))


@pytest.mark.parametrize("channels", [1, 3, 4, 7])
@pytest.mark.parametrize(
    ("size", "taps", "stride", "pads"),
    [
        ((41, 50), (3, 3), 1, (1, 1, 1, 1)),
        ((40, 37), (7, 5), 2, (3, 2, 3, 2)),
        ((37, 90), (3, 2), 4, (0, 1, 2, 0)),  # lines that no window reads
        ((6, 900), (3, 3), 1, (1, 1, 1, 1)),  # long lines
        ((9, 3000), (3, 3), 2, (1, 1, 1, 1)),  # too long for slabs
        ((2, 9), (2, 9), 1, (0, 0, 0, 0)),
    ],
)
def test_few_channels_become_many(
    library: Library,
    channels: int,
    size: tuple[int, int],
    taps: tuple[int, int],
    stride: int,
    pads: tuple[int, ...],
) -> None:
    """Plane by plane to pixel by pixel: slabs of the input are copied before they are read."""
    x, w = _numbers(2, channels, *size), _numbers(19, channels, *taps, seed=1) / 8
    strides = (stride, stride)
    sizes = [(size[i] + pads[i] + pads[i + 2] - taps[i]) // stride + 1 for i in range(2)]
    out = np.moveaxis(np.empty((2, *sizes, 19), np.float32), 3, 1)
    attributes = {"strides": strides, "dilations": (1, 1), "pads": pads, "group": 1}
    attributes |= {"activation": "Relu", "winograd": 0}
    inputs = [x, w, _numbers(19, seed=2)]
    expected = numpy_results("Conv", inputs, [out], attributes, (1, 2))[0]
    (got,) = steady_results(library, "Conv", inputs, [out], attributes, (1, 2), most_threads=3)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axis", [2, 3, 4])
def test_axes_of_one_anywhere(library: Library, axis: int) -> None:
    shape, taps, strides, pads = [2, 3, 1, 1, 1], [4, 3, 1, 1, 1], [1, 1, 1], [0] * 6
    shape[axis], taps[axis], strides[axis - 2], pads[axis - 2] = 40, 5, 2, 3
    _convolve(library, _numbers(*shape), _numbers(*taps, seed=1), 1, strides, pads)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("taps", [(1, 1), (4, 5)])
def test_one_window(library: Library, batch: int, taps: tuple[int, int]) -> None:
    x, w = _numbers(batch, 33, *taps), _numbers(70, 33, *taps, seed=1)
    _convolve(library, x, w, 1, (1, 1), (0, 0, 0, 0), "HardSwish")


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [(5, 5), (7, 7), (14, 14), (9, 35), (30, 70)])
@pytest.mark.parametrize("taps", [3, 5])
def test_channel_by_channel(
    library: Library, taps: int, size: tuple[int, int], stride: int
) -> None:
    x, w = _numbers(2, 7, *size), _numbers(7, 1, taps, taps, seed=1)
    _convolve(library, x, w, 7, (stride, stride), (taps // 2,) * 4, "HardSwish")


@pytest.mark.parametrize("alpha", [1.0, -1.2])
@pytest.mark.parametrize("filters", [16, 21, 40])
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_swish_of_results_wherever_they_lie(
    library: Library, filters: int, alpha: float, *, last: bool, added: bool
) -> None:
    """Also where exponentials are beyond all floats, and of what is undefined."""
    x = np.moveaxis(_numbers(2, 5, 9, 12), 3, 1)
    x[0, :, 0, :6] *= np.array([100, -100, 1e4, -1e4, 1e30, np.nan], np.float32)
    w, bias = _numbers(filters, 12, 1, 1, seed=1), _numbers(filters, seed=2)
    out = np.empty((2, filters, 5, 9), np.float32)
    if last:
        out = np.moveaxis(np.empty((2, 5, 9, filters), np.float32), 3, 1)
    residual = np.full_like(out, 3) if added else None
    attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0), "group": 1}
    attributes |= {"activation": "Swish", "activation_alpha": alpha, "winograd": 0}
    inputs = [x, w, bias, residual]
    with np.errstate(all="ignore"):
        expected = numpy_results("Conv", inputs, [out], attributes, (1, 2))[0]
    (got,) = steady_results(library, "Conv", inputs, [out], attributes, (1, 2))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [(5, 5), (14, 14), (33, 70)])
@pytest.mark.parametrize("opcode", ["MaxPool", "AveragePool"])
def test_pools(library: Library, opcode: str, size: tuple[int, int], stride: int) -> None:
    x = _numbers(2, 5, *size)
    x[0, 0, 2, 2], x[1, 4, 0, 0], x[1, 3] = np.nan, np.inf, -np.inf
    sizes = [(extent + 2 - 3) // stride + 1 for extent in size]
    out = np.empty((2, 5, *sizes), np.float32)
    attributes = {
        "kernel_shape": (3, 3),
        "strides": (stride, stride),
        "pads": (1, 1, 1, 1),
        "dilations": (1, 1),
    }
    expected = numpy_results(opcode, [x], [out], attributes)[0]
    result = native_results(library, opcode, [x], [out], attributes)
    assert result is not None
    np.testing.assert_allclose(result[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 11, 12, 13, 40, 300])
@pytest.mark.parametrize("n", [1, 16, 17, 32, 300])
def test_products_of_all_tiles(library: Library, m: int, n: int) -> None:
    k = 530
    left, right, bias = _numbers(m, k), _numbers(k, n, seed=1), _numbers(n, seed=2)
    out = np.empty((m, n), np.float32)
    inputs = [left, right, bias, _numbers(m, n, seed=3)]
    for activation in ("", "Relu", "Tanh"):
        attributes = {"activation": activation}
        expected = numpy_results("MatMul", inputs, [out], attributes, (1,))[0]
        (got,) = steady_results(library, "MatMul", inputs, [out], attributes, (1,))
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("filters", [1, 3, 32])
@pytest.mark.parametrize(("channels", "taps", "size"), [(64, 4, 16), (32, 4, 19), (70, 3, 12)])
def test_few_results_of_long_windows(
    library: Library, filters: int, channels: int, taps: int, size: int
) -> None:
    """Images with their channels first, which are turned."""
    x, w = _numbers(2, channels, size, size), _numbers(filters, channels, taps, taps, seed=1)
    attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0), "group": 1}
    outputs = [np.empty((2, filters, *(size - taps + 1,) * 2), np.float32)]
    assert direct_wins(w.shape, outputs[0].shape, (1, 1))
    arguments = ("Conv", [x, w], outputs, attributes, (1,))
    (expected,) = numpy_results(*arguments)
    (found,) = steady_results(library, *arguments)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
