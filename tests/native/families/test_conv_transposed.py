"""Transposed convolutions whose phases are made by one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array
from popc_runtime.native import Library, find_library, folded
from tests.native.bindings import bound, encode, native_results, numpy_results, steady_results

_KERNEL = "ConvTransposed_f32"


@pytest.fixture(autouse=True)
def _everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where other ways are faster."""
    monkeypatch.setattr(folded, "folding_wins", lambda *_: False)


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _laid(array: Array, layout: str) -> Array:
    if layout == "pixels":
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)
    if layout == "part":
        wide = np.full((len(array), array.shape[1] + 3, *array.shape[2:]), 7, np.float32)
        wide[:, 2:-1] = array
        return wide[:, 2:-1]
    if layout == "every other":
        wide = np.full((*array.shape[:-1], 2 * array.shape[-1]), 7, np.float32)
        wide[..., 1::2] = array
        return wide[..., 1::2]
    if layout == "backwards":
        return np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    if layout == "one image":  # repeated
        return np.broadcast_to(array[:1], array.shape)
    return array


_LAYOUTS = ("planes", "pixels", "part", "every other", "backwards", "one image")


def _problem(
    x: tuple[int, ...], w: tuple[int, ...], stride: tuple[int, ...], pads: tuple[int, ...],
    group: int = 1, more: int = 0
) -> tuple[Array, dict[str, Any]]:  # fmt: skip
    """Some result, ``more`` elements longer than windows reach, and the attributes."""
    rank = len(stride)
    sizes = [
        (x[2 + i] - 1) * stride[i] + w[2 + i] + more - pads[i] - pads[rank + i] for i in range(rank)
    ]
    attributes = {"strides": stride, "dilations": (1,) * rank, "pads": pads, "group": group}
    return np.empty((x[0], w[1] * group, *sizes), np.float32), attributes


def _check(
    library: Library,
    inputs: list[Array | None],
    out: Array,
    attributes: dict[str, Any],
    constant: tuple[int, ...],
) -> None:
    record = encode("ConvTranspose", bound(inputs, [out], attributes, constant), library.numbers)
    assert record is not None
    assert record.kernel == _KERNEL
    assert record.before == ()
    arguments = ("ConvTranspose", inputs, [out], attributes, constant)
    (expected,) = numpy_results(*arguments)
    (got,) = steady_results(library, *arguments, most_threads=3)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("constant", [(), (1, 2)])
@pytest.mark.parametrize(
    ("x", "w", "stride", "pads", "group", "more"),
    [
        ((1, 5, 4, 4), (5, 13, 4, 4), (2, 2), (1, 1, 1, 1), 1, 0),
        ((2, 9, 3, 7), (9, 3, 3, 3), (2, 2), (1, 1, 1, 1), 1, 1),
        ((2, 4, 5, 8), (4, 7, 2, 2), (2, 2), (0, 0, 0, 0), 1, 0),
        ((3, 6, 5, 4), (6, 5, 5, 5), (2, 2), (2, 1, 2, 0), 2, 0),
        ((2, 6, 40), (6, 3, 16), (8,), (4, 4), 1, 0),
        ((1, 4, 3, 2), (4, 5, 1, 2), (2, 5), (0, 0, 0, 0), 1, 3),  # phases without taps
        ((1, 3, 6, 9), (3, 4, 3, 2), (1, 3), (0, 1, 2, 0), 1, 0),
        ((2, 4, 3, 4, 5), (4, 3, 3, 2, 4), (2, 1, 2), (1, 0, 1, 1, 1, 1), 1, 0),
        ((1, 4, 3, 4, 5), (4, 6, 2, 2, 2), (2, 2, 2), (0, 0, 0, 0, 0, 0), 2, 0),
        ((2, 3, 4, 4), (3, 4, 2, 2), (2, 2), (3, 2, 1, 2), 1, 0),  # no phase begins at 0
        ((2, 5, 5, 7), (5, 6, 4, 4), (2, 2), (2, 0, 2, 2), 1, 0),  # phases with the same windows
        ((3, 4, 5, 7), (4, 5, 4, 4), (4, 4), (0, 0, 0, 0), 1, 0),
        ((1, 6, 3, 5, 7), (6, 3, 2, 2, 2), (2, 2, 2), (0, 0, 0, 0, 0, 0), 1, 0),
        ((2, 9, 35), (9, 14, 16), (16,), (0, 0), 1, 0),
        ((1, 7, 1, 1), (7, 19, 4, 3), (4, 5), (0, 0, 1, 0), 1, 0),
    ],
)  # fmt: skip
def test_any_layout(
    library: Library,
    x: tuple[int, ...],
    w: tuple[int, ...],
    stride: tuple[int, ...],
    pads: tuple[int, ...],
    group: int,
    more: int,
    constant: tuple[int, ...],
    layout: str,
) -> None:
    out, attributes = _problem(x, w, stride, pads, group, more)
    image, weights = _laid(_numbers(*x), layout), _laid(_numbers(*w, seed=1), layout)
    for bias, activation in ((None, ""), (_numbers(out.shape[1], seed=2), "Tanh")):
        named = {**attributes, "activation": activation}
        _check(library, [image, weights, bias], out, named, constant)


@pytest.mark.parametrize("taps", [2, 3, 4])
@pytest.mark.parametrize(
    ("x", "filters"),
    [
        ((1, 300, 8, 8), 40),  # windows longer than what is added up at once
        ((9, 40, 8, 8), 25),  # images for all threads
        ((1, 70, 40, 28), 13),  # several blocks of lines
        ((2, 48, 3, 900), 5),  # of a part of a line
        ((1, 16, 64, 32), 12),  # lines of whole vectors
        ((1, 900, 2, 33), 3),
    ],
)
def test_any_size(library: Library, x: tuple[int, ...], filters: int, taps: int) -> None:
    pad = taps // 2 - taps // 4
    out, attributes = _problem(x, (x[1], filters, taps, taps), (2, 2), (pad,) * 4)
    attributes["activation"] = "Relu"
    w, bias = _numbers(x[1], filters, taps, taps, seed=1) / 8, _numbers(filters, seed=2)
    _check(library, [_numbers(*x), w, bias], out, attributes, (1, 2))


def test_an_image_is_computed_like_several(library: Library) -> None:
    x, w = _numbers(11, 33, 6, 7), _numbers(33, 21, 3, 4, seed=1)
    out, attributes = _problem(x.shape, w.shape, (2, 2), (1, 1, 0, 1))
    all_at_once, one = (
        native_results(library, "ConvTranspose", [images, w], [out[: len(images)]], attributes)
        for images in (x, x[:1])
    )
    assert all_at_once is not None
    assert one is not None
    assert all_at_once[0][0].tobytes() == one[0][0].tobytes()


@pytest.mark.parametrize("special", [np.nan, np.inf, 1e-40])
def test_what_is_beside_an_image_is_not_multiplied(library: Library, special: float) -> None:
    """What is undefined stays where its windows are."""
    x, w = _numbers(1, 2, 4, 5), np.abs(_numbers(2, 3, 4, 4, seed=1)) + 1
    x[0, 1, 2, 0] = special
    out, attributes = _problem(x.shape, w.shape, (2, 2), (1, 1, 1, 1))
    (expected,) = numpy_results("ConvTranspose", [x, w], [out], attributes, (1,))
    (got,) = steady_results(library, "ConvTranspose", [x, w], [out], attributes, (1,))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_drawn(data: st.DataObject) -> None:
    library = find_library()
    assert library is not None
    rank, group = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([1, 1, 2, 3]))
    of_axis = st.lists(st.integers(1, 5), min_size=rank, max_size=rank)
    taps, stride = data.draw(of_axis), data.draw(of_axis)
    pads = data.draw(st.lists(st.integers(0, 2), min_size=2 * rank, max_size=2 * rank))
    more = data.draw(st.integers(0, 2))
    few = st.lists(st.integers(1, 9), min_size=rank, max_size=rank)
    batch, narrow = data.draw(st.sampled_from([1, 2, 9])), data.draw(st.integers(1, 20))
    x = (batch, narrow * group, *data.draw(few))
    w = (x[1], data.draw(st.integers(3, 26)), *taps)
    cut = [pads[i] + pads[rank + i] for i in range(rank)]
    sizes = [(x[2 + i] - 1) * stride[i] + taps[i] + more - cut[i] for i in range(rank)]
    if min(sizes) < 1:
        return
    out = np.empty((x[0], w[1] * group, *sizes), np.float32)
    attributes = {"strides": tuple(stride), "dilations": (1,) * rank, "pads": tuple(pads)}
    layout = data.draw(st.sampled_from(_LAYOUTS))
    inputs = [_laid(_numbers(*x), layout), _numbers(*w, seed=1), _numbers(out.shape[1], seed=2)]
    named = attributes | {"group": group, "activation": "Relu", "winograd": 0}
    constant = data.draw(st.sampled_from([(), (1, 2)]))
    (expected,) = numpy_results("ConvTranspose", inputs, [out], named, constant)
    (got,) = steady_results(library, "ConvTranspose", inputs, [out], named, constant)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
