"""Convolutions of few channels by vectors of one row each give what sums of products give."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array
from popc_runtime.native import Library, NativeFailure, NativeProgram, find_library
from popc_runtime.native.algorithms import rows_win
from popc_runtime.native.encoders import conv
from tests.native.bindings import bound, encode, numpy_results, steady_results

_KERNEL: Final = "ConvRows_f32"


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _parts_of(image: Array) -> Array:
    """The same numbers between others, as slices of channels and of rows have them."""
    wide = np.full([2 * size for size in image.shape[:-1]] + [image.shape[-1] + 3], np.nan, "f4")
    part = wide[tuple(slice(0, size) for size in image.shape)]
    part[...] = image
    return part


@pytest.fixture(autouse=True)
def _wherever_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it pays or not."""
    monkeypatch.setattr(conv, "rows_win", lambda *_: True)
    monkeypatch.setattr(conv, "direct_wins", lambda *_: False)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_images_of_any_size(data: st.DataObject) -> None:
    library = find_library()
    if library is None:
        pytest.skip("there are no native kernels")
    axes = range(data.draw(st.integers(1, 3), label="axes"))
    window = [data.draw(st.integers(1, 4)) for _ in axes]
    strides = [data.draw(st.sampled_from([1, 1, 2, 3])) for _ in axes]
    dilations = [data.draw(st.sampled_from([1, 1, 2])) for _ in axes]
    results = [data.draw(st.integers(1, 5)) for _ in axes[:-1]] + [data.draw(st.integers(16, 70))]
    pads = [data.draw(st.integers(0, 2)) for _ in (*axes, *axes)]
    group, channels = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    filters, batch = data.draw(st.integers(3, 30)), data.draw(st.integers(1, 2))
    reach = [(window[i] - 1) * dilations[i] + (results[i] - 1) * strides[i] + 1 for i in axes]
    size = [reach[i] - pads[i] - pads[i + len(axes)] for i in axes]
    assume(min(size) > 0 and prod(window) > 1)
    x = _numbers(batch, group * channels, *size)
    if data.draw(st.booleans(), label="a part of a tensor"):
        x = _parts_of(x)
    w = _numbers(group * filters, channels, *window, seed=1)
    out = np.empty((batch, len(w), *results), np.float32)
    bias = _numbers(len(w), seed=2) if data.draw(st.booleans(), label="bias") else None
    residual = _numbers(*out.shape, seed=3) if data.draw(st.booleans(), label="residual") else None
    attributes = {
        "strides": tuple(strides),
        "dilations": tuple(dilations),
        "pads": tuple(pads),
        "group": group,
        "activation": data.draw(st.sampled_from(["", "Relu", "HardSwish", "Swish"])),
        "winograd": 0,
    }
    inputs = [x, w, bias, residual]
    constant = data.draw(st.sampled_from([(), (1, 2)]), label="constant")
    record = encode("Conv", bound(inputs, [out], attributes, constant), library.numbers)
    assume(record is not None and record.kernel == _KERNEL)
    (expected,) = numpy_results("Conv", inputs, [out], attributes, constant)
    (got,) = steady_results(library, "Conv", inputs, [out], attributes, constant, most_threads=3)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [16, 17, 30, 31, 32, 33, 47, 62, 64, 65, 129])
@pytest.mark.parametrize("filters", [3, 12, 13, 25])
def test_rows_of_any_length(library: Library, width: int, filters: int) -> None:
    """The last vector of a row overlaps the one before; pairs reach into the next row."""
    x, w = _numbers(1, 6, 19, width), _numbers(filters, 6, 3, 3, seed=1)
    out = np.empty((1, filters, 19, width), np.float32)
    attributes = _plain(pads=(1, 1, 1, 1))
    for residual in (None, _numbers(*out.shape, seed=3)):
        inputs = [x, w, _numbers(filters, seed=2), residual]
        record = encode("Conv", bound(inputs, [out], attributes, (1,)), library.numbers)
        assert record is not None
        assert record.kernel == _KERNEL
        (expected,) = numpy_results("Conv", inputs, [out], attributes, (1,))
        (got,) = steady_results(library, "Conv", inputs, [out], attributes, (1,), most_threads=16)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def _plain(**changes: Any) -> dict[str, Any]:
    return {
        "strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0), "group": 1, "winograd": 0,
        "activation": "Relu", **changes,
    }  # fmt: skip


def test_special_numbers_stay_where_they_are(library: Library) -> None:
    x, w, out = _numbers(1, 4, 9, 23), _numbers(5, 4, 3, 3), np.empty((1, 5, 7, 21), np.float32)
    x[0, 2, 4, 11], x[0, 1, 0, 0] = np.inf, np.nan
    attributes = _plain(activation="")
    (expected,) = numpy_results("Conv", [x, w], [out], attributes, (1,))
    (got,) = steady_results(library, "Conv", [x, w], [out], attributes, (1,), most_threads=3)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_rows_that_fill_no_vector_are_not_supported(library: Library) -> None:
    x, w = _numbers(1, 4, 9, 20), _numbers(5, 4, 3, 3)
    out = np.empty((1, 5, 7, 18), np.float32)
    record = encode("Conv", bound([x, w], [out], _plain(), (1,)), library.numbers)
    assert record is not None
    NativeProgram(library, [record], (x, w, out), 1).run()
    narrow = encode("Conv", bound([x[..., :5], w], [out[..., :3]], _plain(), (1,)), library.numbers)
    assert narrow is None or narrow.kernel != _KERNEL
    words = list(record.words)
    for place, word in enumerate(words):
        if word == out.shape[-1]:  # the width, wherever it stands
            words[place] = 3
    with pytest.raises(NativeFailure, match="not supported"):
        NativeProgram(library, [type(record)(_KERNEL, tuple(words))], (x, w, out), 1)


@pytest.mark.parametrize(
    ("w", "result", "wins"),
    [
        ((12, 12, 7, 3), (1, 12, 128, 62), True),
        ((8, 3, 3, 3), (1, 8, 60, 250), True),
        ((32, 32, 5, 5), (1, 32, 62, 62), True),
        ((48, 48, 3, 3), (1, 48, 40, 40), False),  # collecting is little
        ((12, 12, 3, 3), (1, 12, 64, 64), False),  # windows lie in one row anyway
        ((16, 16, 3, 3), (1, 16, 20, 20), False),  # vectors would overlap by half
        ((8, 8, 3, 3), (1, 8, 15, 15), False),
        ((12, 12, 1, 1), (1, 12, 128, 62), False),
    ],
)
def test_where_it_pays(w: tuple[int, ...], result: tuple[int, ...], *, wins: bool) -> None:
    assert rows_win(w, result, 1) is wins
