"""Convolutions by Winograd's algorithm give what sums of products give."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import parser

import popc
from popc_runtime.format import ArchiveFile, Array, decode_program, instructions_of
from popc_runtime.native import Library, NativeProgram, find_library
from popc_runtime.native import winograd as encoder
from popc_runtime.native.algorithms import winograd_rows_win, winograd_wins
from tests.native.bindings import bound, encode, native_results, numpy_results, steady_results
from tests.support.fused_programs import channels_last

# Transforms multiply by powers of 1.5, and take differences of large numbers.
_TOLERANCE = 7e-6  # of the largest result
_AXIS_ERRORS = 5  # of sums of products, where transforms are along one axis


@pytest.fixture(autouse=True)
def _everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it pays or not."""
    monkeypatch.setattr(encoder, "winograd_wins", lambda *_: True)
    monkeypatch.setattr(encoder, "winograd_rows_win", lambda *_: True)


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _attributes(
    pads: tuple[int, ...], activation: str = "Relu", dilations: tuple[int, ...] = (1, 1)
) -> dict[str, Any]:
    ones = (1,) * len(dilations)
    return {
        "strides": ones, "dilations": dilations, "pads": pads, "group": 1, "activation": activation
    }  # fmt: skip


def _check(
    library: Library,
    inputs: list[Array | None],
    out: Array,
    attributes: dict[str, Any],
    constant: tuple[int, ...],
) -> None:
    record = encode("Conv", bound(inputs, [out], attributes, constant), library.numbers)
    assert record is not None
    assert record.kernel == "WinogradConv_f32"
    (expected,) = numpy_results("Conv", inputs, [out], attributes, constant)
    (got,) = steady_results(library, "Conv", inputs, [out], attributes, constant, most_threads=3)
    assert np.abs(got - expected).max() <= _TOLERANCE * max(1, np.abs(expected).max())


@pytest.mark.parametrize("constant", [(), (1,)])
@pytest.mark.parametrize("layout", ["planes", "pixels"])
@pytest.mark.parametrize(
    ("size", "window", "pads"),
    [
        ((5, 9), (3, 3), (1, 1, 1, 1)),
        ((12, 6), (3, 3), (0, 2, 2, 1)),
        ((17,), (7,), (2, 0)),
        ((4, 9), (1, 5), (0, 1, 0, 3)),
        ((9, 4), (4, 1), (2, 0, 0, 0)),
    ],
)
def test_transposed(
    library: Library,
    size: tuple[int, ...],
    window: tuple[int, ...],
    pads: tuple[int, ...],
    layout: str,
    constant: tuple[int, ...],
) -> None:
    """What moves by one element is a convolution with mirrored weights."""
    x, w, bias = _numbers(2, 19, *size), _numbers(19, 21, *window, seed=1), _numbers(21, seed=2)
    axes = range(len(size))
    results = [size[i] + window[i] - 1 - pads[i] - pads[i + len(axes)] for i in axes]
    out = np.empty((2, 21, *results), np.float32)
    x = x if layout == "planes" else channels_last(x)
    attributes = _attributes(pads, dilations=(1,) * len(size))
    record = encode(
        "ConvTranspose", bound([x, w, bias], [out], attributes, constant), library.numbers
    )
    assert record is not None
    assert record.kernel == "WinogradConv_f32"
    inputs = [x, w, bias]
    (expected,) = numpy_results("ConvTranspose", inputs, [out], attributes, constant)
    (got,) = steady_results(
        library, "ConvTranspose", inputs, [out], attributes, constant, most_threads=3
    )
    assert np.abs(got - expected).max() <= _TOLERANCE * max(1, np.abs(expected).max())
    sums = encode(
        "ConvTranspose", bound(inputs, [out], {**attributes, "winograd": 0}), library.numbers
    )
    assert sums is not None
    assert sums.kernel != "WinogradConv_f32"


# Along one axis, the number of taps decides about tiles and parts.
_TAPS = st.integers(3, 19)
_WINDOWS = st.one_of(
    st.just((3, 3)), _TAPS.map(lambda n: (n,)), _TAPS.map(lambda n: (1, n)),
    _TAPS.map(lambda n: (n, 1)),
)  # fmt: skip


@given(data=st.data())
@settings(max_examples=160, deadline=None)
def test_images_of_any_size(data: st.DataObject) -> None:
    library = find_library()
    if library is None:
        pytest.skip("there are no native kernels")
    window = data.draw(_WINDOWS, label="window")
    axes = range(len(window))
    batch, size = data.draw(st.integers(1, 3)), [data.draw(st.integers(1, 21)) for _ in axes]
    channels, filters = data.draw(st.integers(16, 70)), data.draw(st.integers(1, 70))
    dilations = [data.draw(st.sampled_from([1, 1, 2, 5])) for _ in axes]
    reach = [(window[axis] - 1) * dilations[axis] for axis in axes]
    pads = [data.draw(st.integers(0, 4)) for _ in (*axes, *axes)]
    for axis in axes:
        pads[axis] = max(pads[axis], reach[axis] + 1 - size[axis] - pads[axis + len(axes)])
    results = [size[i] + pads[i] + pads[i + len(axes)] - reach[i] for i in axes]
    assume(prod(results) > 1)  # a single window is a product
    x, w = _numbers(batch, channels, *size), _numbers(filters, channels, *window, seed=1)
    out, residual = np.empty((batch, filters, *results), np.float32), None
    if data.draw(st.booleans(), label="residual"):
        residual = _numbers(*out.shape, seed=3)
    if data.draw(st.booleans(), label="input with channels last"):
        x = channels_last(x)
    if data.draw(st.booleans(), label="result with channels last"):
        out = channels_last(out)
    if residual is not None and data.draw(st.booleans(), label="residual with channels last"):
        residual = channels_last(residual)
    bias = _numbers(filters, seed=2) if data.draw(st.booleans(), label="bias") else None
    constant = data.draw(st.sampled_from([(), (1, 2)]), label="constant")
    activation = data.draw(st.sampled_from(["", "Relu", "HardSwish", "Swish"]), label="activation")
    attributes = _attributes(tuple(pads), activation, tuple(dilations))
    _check(library, [x, w, bias, residual], out, attributes, constant)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("batch", "channels", "filters", "window", "size"),
    [
        (1, 64, 96, (5,), (300,)),
        (2, 300, 130, (1, 7), (9, 40)),
        (1, 128, 530, (11, 1), (70, 2)),
        (1, 33, 65, (3,), (2000,)),
    ],
)
def test_many_channels_along_one_axis(
    library: Library,
    batch: int,
    channels: int,
    filters: int,
    window: tuple[int, ...],
    size: tuple[int, ...],
    *,
    last: bool,
) -> None:
    """Several blocks, whose last tiles read elements of tiles that come next."""
    x, w = _numbers(batch, channels, *size), _numbers(filters, channels, *window, seed=1)
    out = np.empty((batch, filters, *size), np.float32)
    if last:
        x, out = channels_last(x), channels_last(out)
    for dilation in (1, 3):
        dilations = (dilation,) * len(window)
        pads = tuple((taps - 1) * dilation // 2 for taps in window) * 2
        for constant in ((), (1, 2)):
            attributes = _attributes(pads, "Relu", dilations)
            _check(library, [x, w, _numbers(filters), None], out, attributes, constant)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("batch", "channels", "filters", "size"),
    [(1, 64, 64, 30), (1, 300, 130, 14), (5, 128, 96, 9), (3, 33, 530, 7)],
)
def test_many_channels(
    library: Library, batch: int, channels: int, filters: int, size: int, *, last: bool
) -> None:
    x, w = _numbers(batch, channels, size, size), _numbers(filters, channels, 3, 3, seed=1)
    out = np.empty((batch, filters, size, size), np.float32)
    if last:
        x, out = channels_last(x), channels_last(out)
    for constant in ((), (1, 2)):
        _check(library, [x, w, _numbers(filters), None], out, _attributes((1,) * 4), constant)


@pytest.mark.parametrize("activated", [False, True])
def test_deep_sums_stay_near_exact_ones(library: Library, *, activated: bool) -> None:
    """Interpolated at 0, 1, -1, 2 and -2 they were off by 1.3e-5 to 2e-5 of the largest one."""
    x, w = _numbers(1, 512, 28, 28, seed=1), _numbers(128, 512, 3, 3, seed=2)
    x = np.maximum(x, 0) if activated else x
    padded = np.pad(x[0].astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    expected = np.tensordot(w.astype(np.float64), windows, ((1, 2, 3), (0, 3, 4)))
    result = native_results(
        library, "Conv", [x, w], [np.empty((1, 128, 28, 28), "f4")], _attributes((1,) * 4, ""), (1,)
    )
    assert result is not None
    assert np.abs(result[0][0] - expected).max() <= _TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("taps", [3, 4, 5, 7, 9, 11])
@pytest.mark.parametrize("activated", [False, True])
def test_deep_sums_along_one_axis(library: Library, taps: int, *, activated: bool) -> None:
    x, w = _numbers(1, 512, 400, seed=1), _numbers(128, 512, taps, seed=2)
    x = np.maximum(x, 0) if activated else x
    windows = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.float64), taps, axis=1)
    expected = np.tensordot(w.astype(np.float64), windows, ((1, 2), (0, 2)))
    out, attributes = np.empty((1, 128, 401 - taps), "f4"), _attributes((0, 0), "", (1,))
    errors = []
    for winograd in (0, 1):
        result = native_results(
            library, "Conv", [x, w], [out], {**attributes, "winograd": winograd}, (1,)
        )
        assert result is not None
        errors.append(np.abs(result[0][0] - expected).max())
    assert errors[1] <= _AXIS_ERRORS * errors[0]


def test_special_numbers_stay_in_their_tiles(library: Library) -> None:
    x, w = _numbers(1, 16, 20, 20), _numbers(16, 16, 3, 3, seed=1)
    x[0, 3, 1, 1], x[0, 5, 2, 2] = np.nan, np.inf
    out, attributes = np.empty((1, 16, 20, 20), np.float32), _attributes((1,) * 4, "")
    result = native_results(library, "Conv", [x, w], [out], attributes, (1,))
    (expected,) = numpy_results("Conv", [x, w], [out], attributes, (1,))
    assert result is not None
    assert not np.isfinite(result[0][~np.isfinite(expected)]).any()
    np.testing.assert_allclose(result[0][..., 8:], expected[..., 8:], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(result[0][..., 8:, :], expected[..., 8:, :], rtol=1e-3, atol=1e-3)


def test_in_place(library: Library) -> None:
    """The result may take over the memory of the residual."""
    x, w, residual = _numbers(1, 32, 9, 9), _numbers(50, 32, 3, 3), _numbers(1, 50, 9, 9, seed=4)
    attributes = _attributes((1,) * 4)
    (expected,) = numpy_results("Conv", [x, w, None, residual], [residual], attributes, (1,))
    for out in (residual.copy(), channels_last(residual)):
        binding = bound([x, w, None, out], [out], attributes, (1,))
        record = encode("Conv", binding, library.numbers)
        assert record is not None
        NativeProgram(library, [record], binding, 2).run()
        np.testing.assert_allclose(out, expected, atol=_TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize(
    ("window", "change", "size"),
    [
        ((3, 3), {"winograd": 0}, (24, 24)),
        ((3, 3), {"strides": (2, 2)}, (12, 12)),
        ((2, 3), {}, (25, 24)),
        ((1, 5), {"winograd": 0}, (26, 22)),
        ((1, 5), {"strides": (1, 2)}, (26, 11)),
        ((2, 1), {}, (25, 26)),
        ((1, 1), {}, (26, 26)),
    ],
)
def test_what_it_is_not_for(
    library: Library, window: tuple[int, int], change: dict[str, Any], size: tuple[int, int]
) -> None:
    x, w, out = _numbers(1, 64, 24, 24), _numbers(64, 64, *window), _numbers(1, 64, *size)
    attributes = {**_attributes((1,) * 4), **change}
    record = encode("Conv", bound([x, w], [out], attributes, (1,)), library.numbers)
    assert record is not None
    assert record.kernel != "WinogradConv_f32"


def test_where_it_pays() -> None:
    assert winograd_wins(64, (1, 64, 56, 56))
    assert winograd_wins(32, (32, 32, 32, 32))
    assert not winograd_wins(3, (1, 64, 224, 224))
    assert not winograd_wins(512, (1, 512, 7, 7))
    assert not winograd_wins(64, (1, 64, 7, 7))
    assert winograd_wins(256, (1, 256, 14, 14))
    assert not winograd_wins(8, (1, 8, 224, 224))


@pytest.mark.parametrize(
    ("channels", "result", "window", "dilation", "wins"),
    [
        (80, (1, 384, 1, 3000), (1, 3), 1, True),
        (256, (1, 512, 508, 1), (5, 1), 1, True),
        (128, (1, 128, 1, 500), (1, 11), 5, True),
        (64, (1, 64, 35, 35), (5, 1), 1, True),
        (32, (1, 32, 1, 9000), (1, 3), 1, False),  # transforms take too long
        (512, (1, 512, 1, 12), (1, 5), 1, False),  # weights do
        (512, (1, 512, 1, 1), (1, 7), 1, False),
        (256, (1, 256, 1, 24), (1, 3), 12, False),  # most of the tiles juts out
    ],
)
def test_where_it_pays_along_one_axis(
    channels: int,
    result: tuple[int, ...],
    window: tuple[int, int],
    dilation: int,
    *,
    wins: bool,
) -> None:
    assert winograd_rows_win(channels, result, window, dilation) is wins


def test_elements_far_apart_make_images_of_their_own() -> None:
    assert winograd_wins(64, (1, 64, 56, 56), (2, 2))
    assert not winograd_wins(64, (1, 64, 33, 33), (18, 18))  # 2 x 2 results of a tile


def test_what_juts_out_of_an_image_counts() -> None:
    assert winograd_wins(512, (1, 512, 16, 16))
    assert not winograd_wins(512, (1, 512, 5, 5))


@pytest.mark.parametrize("allowed", [True, False])
def test_the_option(tmp_path: Path, *, allowed: bool) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,4,8,8] x, float[4,4,3,3] w)'
        " => (float[1,4,8,8] y) { y = Conv <pads = [1, 1, 1, 1]> (x, w) }"
    )
    options = {} if allowed else {"winograd": False}
    path = popc.compile(model, options=options).save(tmp_path / "conv.popx")
    with ArchiveFile.open(path) as archive:
        image = decode_program(archive.read("program"))
    (conv,) = (item for item in instructions_of(image.programs["main"]) if item.opcode == "Conv")
    assert conv.attributes.get("winograd", 1) == int(allowed)
