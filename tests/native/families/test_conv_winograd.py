"""Convolutions by Winograd's algorithm give what sums of products give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import parser

import popc
from popc_runtime.format import ArchiveFile, Array, decode_program, instructions_of
from popc_runtime.native import Library, NativeProgram, find_library
from popc_runtime.native import winograd as encoder
from popc_runtime.native.algorithms import winograd_wins
from tests.native.bindings import bound, encode, native_results, numpy_results, steady_results

# Transforms multiply by powers of 1.5, and take differences of large numbers.
_TOLERANCE = 7e-6  # of the largest result


@pytest.fixture(autouse=True)
def _everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it pays or not."""
    monkeypatch.setattr(encoder, "winograd_wins", lambda *_, **__: True)


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _channels_last(image: Array) -> Array:
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(image, 1, -1)), -1, 1)


def _attributes(pads: tuple[int, ...], activation: str = "Relu") -> dict[str, Any]:
    return {
        "strides": (1, 1), "dilations": (1, 1), "pads": pads, "group": 1, "activation": activation
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
@pytest.mark.parametrize(("size", "pads"), [((5, 9), (1, 1, 1, 1)), ((12, 6), (0, 2, 2, 1))])
def test_transposed(
    library: Library,
    size: tuple[int, int],
    pads: tuple[int, ...],
    layout: str,
    constant: tuple[int, ...],
) -> None:
    """What moves by one element is a convolution with mirrored weights."""
    x, w, bias = _numbers(2, 19, *size), _numbers(19, 21, 3, 3, seed=1), _numbers(21, seed=2)
    out = np.empty((2, 21, *(size[i] + 2 - pads[i] - pads[i + 2] for i in range(2))), np.float32)
    x = x if layout == "planes" else _channels_last(x)
    attributes = _attributes(pads)
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


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_images_of_any_size(data: st.DataObject) -> None:
    library = find_library()
    if library is None:
        pytest.skip("there are no native kernels")
    batch, size = data.draw(st.integers(1, 3)), [data.draw(st.integers(1, 21)) for _ in range(2)]
    channels, filters = data.draw(st.integers(16, 70)), data.draw(st.integers(1, 70))
    pads = [data.draw(st.integers(0, 4)) for _ in range(4)]
    for axis in range(2):
        pads[axis] = max(pads[axis], 3 - size[axis] - pads[axis + 2])
    results = [size[i] + pads[i] + pads[i + 2] - 2 for i in range(2)]
    x, w = _numbers(batch, channels, *size), _numbers(filters, channels, 3, 3, seed=1)
    out, residual = np.empty((batch, filters, *results), np.float32), None
    if data.draw(st.booleans(), label="residual"):
        residual = _numbers(*out.shape, seed=3)
    if data.draw(st.booleans(), label="input with channels last"):
        x = _channels_last(x)
    if data.draw(st.booleans(), label="result with channels last"):
        out = _channels_last(out)
        residual = None if residual is None else _channels_last(residual)
    bias = _numbers(filters, seed=2) if data.draw(st.booleans(), label="bias") else None
    constant = data.draw(st.sampled_from([(), (1, 2)]), label="constant")
    activation = data.draw(st.sampled_from(["", "Relu", "HardSwish", "Swish"]), label="activation")
    attributes = _attributes(tuple(pads), activation)
    _check(library, [x, w, bias, residual], out, attributes, constant)


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
        x, out = _channels_last(x), _channels_last(out)
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
    for out in (residual.copy(), _channels_last(residual)):
        binding = bound([x, w, None, out], [out], attributes, (1,))
        record = encode("Conv", binding, library.numbers)
        assert record is not None
        NativeProgram(library, [record], binding, 2).run()
        np.testing.assert_allclose(out, expected, atol=_TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize(
    ("change", "size"),
    [
        ({"winograd": 0}, 24),
        ({"strides": (2, 2)}, 12),
        ({"dilations": (2, 2)}, 22),
    ],
)
def test_what_it_is_not_for(library: Library, change: dict[str, Any], size: int) -> None:
    x, w, out = _numbers(1, 64, 24, 24), _numbers(64, 64, 3, 3), _numbers(1, 64, size, size)
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


def test_what_juts_out_of_an_image_counts() -> None:
    assert winograd_wins(512, (1, 512, 16, 16))
    assert not winograd_wins(512, (1, 512, 5, 5))


@pytest.mark.parametrize("layout", ["planes", "pixels"])
@pytest.mark.parametrize(
    ("images", "channels", "filters", "pads"),
    [
        ((1, 8, 8), 32, 32, (1, 1, 1, 1)),
        ((3, 11, 6), 48, 80, (0, 2, 2, 1)),
        ((1, 20, 4), 96, 32, (-1, 0, 1, 1)),
        ((70, 7, 8), 32, 144, (1, 1, 1, 1)),  # several groups of tiles
        ((2, 70, 61), 32, 48, (2, 2, 2, 2)),
    ],
)
def test_gradients_of_weights(
    library: Library,
    layout: str,
    images: tuple[int, int, int],
    channels: int,
    filters: int,
    pads: tuple[int, int, int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encoder, "winograd_sums_win", lambda *_: True)
    batch, *sizes = images
    x = _numbers(batch, channels, *sizes)
    results = [size + pads[axis] + pads[axis + 2] - 2 for axis, size in enumerate(sizes)]
    dy, w = _numbers(batch, filters, *results, seed=1), np.empty((filters, channels, 3, 3), "f")
    inputs: list[Array | None] = [dy, _channels_last(x) if layout == "pixels" else x]
    attributes = _attributes(pads)
    record = encode("ConvWeightsGrad", bound(inputs, [w], attributes), library.numbers)
    assert record is not None
    assert record.kernel == "WinogradConvWeights_f32"
    (got,) = steady_results(library, "ConvWeightsGrad", inputs, [w], attributes, most_threads=3)
    expected = _sums(x, dy, pads)
    assert np.abs(got - expected).max() <= _TOLERANCE * np.abs(expected).max()


def _sums(x: Array, dy: Array, pads: tuple[int, ...]) -> Array:
    """The gradient of weights 3 x 3 in float64."""
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (2, 2), (2, 2)))
    rows, columns = dy.shape[2:]
    top, left = 2 - pads[0], 2 - pads[1]
    gradient = dy.astype(np.float64).transpose(1, 0, 2, 3).reshape(dy.shape[1], -1)
    taps = [
        gradient
        @ wide[:, :, i : i + rows, j : j + columns].transpose(0, 2, 3, 1).reshape(-1, x.shape[1])
        for i in range(top, top + 3)
        for j in range(left, left + 3)
    ]
    return np.stack(taps, -1).reshape(dy.shape[1], x.shape[1], 3, 3)


@pytest.mark.parametrize(
    ("change", "x", "dy"),
    [
        ({"winograd": 0}, (1, 64, 8, 8), (1, 64, 8, 8)),
        ({"strides": (2, 2)}, (1, 64, 16, 16), (1, 64, 8, 8)),
        ({}, (1, 64, 6, 6), (1, 64, 6, 6)),
        ({}, (9, 64, 2, 4), (9, 64, 2, 4)),
        ({}, (1, 64, 8, 8), (1, 20, 8, 8)),
        ({}, (1, 16, 8, 8), (1, 64, 8, 8)),
    ],
)
def test_which_gradients_of_weights_it_is_not_for(
    library: Library, change: dict[str, Any], x: tuple[int, ...], dy: tuple[int, ...]
) -> None:
    attributes = {**_attributes((1,) * 4), **change}
    w = np.empty((dy[1], x[1], 3, 3), np.float32)
    binding = bound([_numbers(*dy), _numbers(*x)], [w], attributes)
    record = encode("ConvWeightsGrad", binding, library.numbers)
    assert record is not None
    assert record.kernel == "ConvWeights_f32"


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
