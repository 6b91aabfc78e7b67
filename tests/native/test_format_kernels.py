"""Kernels on images in any memory format: channels last, first, or in a slice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.format import Array
from popc_runtime.native import Library, NativeProgram, find_library
from popc_runtime.native.library import variants
from tests.native.bindings import bound, encode, numpy_results

pytestmark = pytest.mark.skipif(not variants(), reason="there are no native kernels")

FORMATS = ("first", "last", "slice of last", "slice of first")


def _place(values: Array, form: str) -> Array:
    """``values`` [N, C, *sizes] in memory of this format; what lies around them is NaN."""
    shape, channels = values.shape, values.shape[1]
    wide = channels + 5 if form.startswith("slice") else channels
    if form.endswith("last"):
        memory = np.full((shape[0], *shape[2:], wide), np.nan, np.float32)
        whole = np.moveaxis(memory, -1, 1)
    else:
        whole = np.full((shape[0], wide, *shape[2:]), np.nan, np.float32)
    part = whole[:, wide - channels :]
    part[...] = values
    return part


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def _run(
    library: Library,
    opcode: str,
    operands: list[Any],
    out: Array,
    attributes: Any,
    threads: int,
    constants: tuple[int, ...] = (1,),
) -> str:
    binding = bound(operands, [out], attributes, constants)
    record = encode(opcode, binding, library.numbers)
    assert record is not None
    NativeProgram(library, [record], binding, threads).run()
    return record.kernel


def _check(
    opcode: str,
    inputs: list[Any],
    formats: tuple[str, str, str],
    shape: tuple[int, ...],
    attributes: Any,
) -> set[str]:
    """Compares all kinds of kernels with numpy; formats are those of x, the residual and y."""
    expected = numpy_results(opcode, inputs, [np.empty(shape, np.float32)], attributes, (1,))[0]
    placed = list(inputs)
    placed[0] = _place(inputs[0], formats[0])
    if len(inputs) > 3 and inputs[3] is not None:
        placed[3] = _place(inputs[3], formats[1])
    used = set()
    for name in variants():
        library = find_library(name)
        assert library is not None
        results = []
        for threads, constants in ((1, (1,)), (2, (1,)), (2, ())):
            out = _place(np.full(shape, 77, np.float32), formats[2])
            used.add(_run(library, opcode, placed, out, attributes, threads, constants))
            results.append(out)
            around = out.base
            assert around is not None
            if formats[2].startswith("slice"):
                assert np.isnan(around).sum() == around.size - out.size
        np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=2e-4)
        assert len({result.tobytes() for result in results}) == 1
    return used


@st.composite
def _convolutions(draw: st.DrawFn) -> tuple[Any, ...]:
    rank = draw(st.integers(1, 3))
    group = draw(st.sampled_from([1, 1, 1, 2, 3]))
    each, outs = draw(st.integers(1, 40)), draw(st.integers(1, 80))
    if draw(st.booleans()):
        each, outs, group = 1, 1, draw(st.integers(1, 150))
    taps = [draw(st.integers(1, 4)) for _ in range(rank)]
    strides = [draw(st.integers(1, 3)) for _ in range(rank)]
    dilations = [draw(st.integers(1, 2)) for _ in range(rank)]
    before = [draw(st.integers(0, 3)) for _ in range(rank)]
    after = [draw(st.integers(0, 3)) for _ in range(rank)]
    results = [draw(st.integers(1, 9 if rank < 3 else 4)) for _ in range(rank)]
    sizes = [
        max(1, (y - 1) * s + (t - 1) * d + 1 - b - a)
        for y, s, t, d, b, a in zip(results, strides, taps, dilations, before, after, strict=True)
    ]
    out = [
        (n + b + a - (t - 1) * d - 1) // s + 1
        for n, s, t, d, b, a in zip(sizes, strides, taps, dilations, before, after, strict=True)
    ]
    batch = draw(st.integers(1, 2))
    x = _numbers(batch, each * group, *sizes)
    w = _numbers(outs * group, each, *taps, seed=1) / 4
    shape = (batch, outs * group, *out)
    bias = _numbers(outs * group, seed=2) if draw(st.booleans()) else None
    residual = _numbers(*shape, seed=3) if draw(st.booleans()) else None
    attributes = {
        "strides": tuple(strides),
        "dilations": tuple(dilations),
        "pads": (*before, *after),
        "group": group,
        "activation": draw(st.sampled_from(["", "Relu", "Clip", "HardSwish"])),
    }
    if attributes["activation"] == "Clip":
        attributes |= {"activation_min": -0.25, "activation_max": 1.5}
    return [x, w, bias, residual], shape, attributes


@given(_convolutions(), st.tuples(*(st.sampled_from(FORMATS),) * 3))
@settings(max_examples=150, deadline=None)
def test_convolutions(problem: tuple[Any, ...], formats: tuple[str, str, str]) -> None:
    inputs, shape, attributes = problem
    _check("Conv", inputs, formats, shape, attributes)


@pytest.mark.parametrize("channels", [16, 24, 40, 100, 130])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("group", [1, 4])
def test_dense(channels: int, stride: int, group: int) -> None:
    outs, out = channels + 4 - channels % 4, 15 if stride == 1 else 8
    channels -= channels % group
    inputs = [_numbers(1, channels, 15, 15), _numbers(outs, channels // group, 3, 3, seed=1) / 8]
    inputs += [_numbers(outs, seed=2), _numbers(1, outs, out, out, seed=3)]
    attributes = {
        "strides": (stride, stride),
        "dilations": (1, 1),
        "pads": (1, 1, 1, 1),
        "group": group,
        "winograd": 0,
        "activation": "Relu",
    }
    used = _check("Conv", inputs, ("last",) * 3, (1, outs, out, out), attributes)
    assert used == {"ConvDirect_f32"}


@pytest.mark.parametrize(
    ("channels", "taps", "form"),
    [(2100, 1, "last"), (2500, 1, "slice of last"), (360, 3, "last"), (100, 5, "slice of last")],
)
@pytest.mark.parametrize("outs", [8, 40, 70])
def test_long_windows(channels: int, taps: int, form: str, outs: int) -> None:
    shape = (2, outs, 5, 5)
    inputs = [_numbers(2, channels, 5, 5), _numbers(outs, channels, taps, taps, seed=1) / 32]
    inputs += [_numbers(outs, seed=2), _numbers(*shape, seed=3)]
    attributes = {
        "strides": (1, 1),
        "dilations": (1, 1),
        "pads": (taps // 2,) * 4,
        "group": 1,
        "activation": "Relu",
    }
    used = _check("Conv", inputs, (form,) * 3, shape, attributes)
    assert used == {"ConvDirect_f32"}


@pytest.mark.parametrize("channels", [3, 24, 64])
@pytest.mark.parametrize("taps", [1, 3])
def test_results_do_not_depend_on_the_division_of_a_batch(channels: int, taps: int) -> None:
    library = find_library()
    assert library is not None
    x, w = _numbers(5, channels, 6, 7), _numbers(40, channels, taps, taps, seed=1)
    attributes = {"pads": (taps // 2,) * 4, "activation": "Relu"}
    results = []
    for size in (5, 2, 1):
        out = _place(np.empty((5, 40, 6, 7), np.float32), "last")
        for first in range(0, 5, size):
            images = _place(x[first : first + size], "last")
            part = out[first : first + size]
            _run(library, "Conv", [images, w, None, None], part, attributes, 1, (1,))
        results.append(out.tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize("activation", ["Relu", "Clip", "HardSwish"])
@pytest.mark.parametrize("group", [1, 24])
def test_what_is_undefined_stays_so(group: int, activation: str) -> None:
    x, w, bias = _numbers(1, 24, 9, 9), _numbers(24, 24 // group, 3, 3, seed=1), _numbers(24)
    bias[3], bias[5], bias[7] = np.nan, np.inf, -np.inf
    attributes = {"pads": (1, 1, 1, 1), "group": group, "winograd": 0, "activation": activation}
    if activation == "Clip":
        attributes |= {"activation_min": -0.25, "activation_max": 1.5}
    _check("Conv", [x, w, bias, None], ("last",) * 3, x.shape, attributes)


@pytest.mark.parametrize("channels", [1, 2, 7, 8, 12, 15, 16, 24, 58, 144])
@pytest.mark.parametrize("taps", [3, 5, 7])
@pytest.mark.parametrize("stride", [1, 2])
def test_channel_by_channel(channels: int, taps: int, stride: int) -> None:
    shape = (2, channels, 13 // stride + 13 % stride, 13 // stride + 13 % stride)
    inputs = [_numbers(2, channels, 13, 13), _numbers(channels, 1, taps, taps, seed=1)]
    inputs += [_numbers(channels, seed=2), _numbers(*shape, seed=3)]
    attributes = {
        "strides": (stride, stride),
        "dilations": (1, 1),
        "pads": (taps // 2,) * 4,
        "group": channels,
        "activation": "HardSwish",
    }
    used = _check("Conv", inputs, ("slice of last", "last", "slice of last"), shape, attributes)
    assert used == {"DepthwiseLast_f32"}


@pytest.mark.parametrize(("groups", "few"), [(4, 4), (9, 4), (2, 8), (5, 8)])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("form", ["first", "last", "slice of last"])
def test_groups_of_few_channels(groups: int, few: int, stride: int, form: str) -> None:
    channels, size = groups * few, 13 // stride + 13 % stride
    shape = (2, channels, size, size)
    inputs = [_numbers(2, channels, 13, 13), _numbers(channels, few, 3, 3, seed=1)]
    inputs += [_numbers(channels, seed=2), _numbers(*shape, seed=3)]
    attributes = {
        "strides": (stride, stride),
        "dilations": (1, 1),
        "pads": (1, 1, 1, 1),
        "group": groups,
        "activation": "Relu",
    }
    used = _check("Conv", inputs, (form, "last", "slice of last"), shape, attributes)
    assert used == {"DepthwiseLast_f32"}


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_rows_of_channels(data: st.DataObject) -> None:
    few = data.draw(st.sampled_from([1, 1, 4, 8]), label="channels of a group")
    groups, taps = data.draw(st.integers(1, 70 // few)), (data.draw(st.integers(1, 7)), 3)
    channels = groups * few
    if data.draw(st.booleans()):
        taps = (taps[0], 5)
    strides = (data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2)))
    dilations = (data.draw(st.integers(1, 2)), 1)
    pads = tuple(data.draw(st.integers(0, 4)) for _ in range(4))
    out = (data.draw(st.integers(1, 6)), data.draw(st.integers(1, 20)))
    sizes = [
        max(1, (out[i] - 1) * strides[i] + (taps[i] - 1) * dilations[i] + 1 - pads[i] - pads[i + 2])
        for i in (0, 1)
    ]
    shape = (
        2,
        channels,
        *(
            (sizes[i] + pads[i] + pads[i + 2] - (taps[i] - 1) * dilations[i] - 1) // strides[i] + 1
            for i in (0, 1)
        ),
    )
    inputs: list[Any] = [_numbers(2, channels, *sizes), _numbers(channels, few, *taps, seed=1)]
    inputs += [_numbers(channels, seed=2) if data.draw(st.booleans()) else None]
    inputs += [_numbers(*shape, seed=3) if data.draw(st.booleans()) else None]
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "group": groups}
    attributes["activation"] = data.draw(st.sampled_from(["", "Relu", "HardSwish"]))
    formats = data.draw(st.tuples(*(st.sampled_from(FORMATS),) * 3))
    _check("Conv", inputs, formats, shape, attributes)


@pytest.mark.parametrize("opcode", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels", [1, 5, 16, 27, 70])
@pytest.mark.parametrize("form", ["last", "slice of last"])
def test_pools(opcode: str, stride: int, channels: int, form: str) -> None:
    x = _numbers(2, channels, 9, 14)
    x[0, 0, 2, 2], x[1, -1, 0, 0], x[1, :, 5:] = np.nan, np.inf, -np.inf
    shape = (2, channels, (9 - 1) // stride + 1, (14 - 1) // stride + 1)
    attributes = {
        "kernel_shape": (3, 3),
        "strides": (stride, stride),
        "pads": (1, 1, 1, 1),
        "dilations": (1, 1),
    }
    if form.startswith("slice"):
        x = np.nan_to_num(x, nan=3, posinf=9, neginf=-9)
    used = _check(opcode, [x], (form, form, form), shape, attributes)
    planes = channels == 1 and form == "last"  # that is the same
    assert used == {"Pool_f32" if planes else "PoolLast_f32"}


@pytest.mark.parametrize("opcode", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("formats", [("first", "last"), ("last", "first"), ("slice of first",) * 2])
def test_pools_between_formats(opcode: str, formats: tuple[str, str]) -> None:
    x = _numbers(2, 21, 9, 14)
    attributes = {
        "kernel_shape": (3, 2),
        "strides": (2, 1),
        "pads": (1, 1, 1, 1),
        "dilations": (1, 1),
    }
    used = _check(opcode, [x], (formats[0], "first", formats[1]), (2, 21, 5, 15), attributes)
    assert used == {"PoolLast_f32"}


@pytest.mark.parametrize("opcode", ["ReduceMean", "ReduceMax", "ReduceSum"])
@pytest.mark.parametrize("channels", [2, 17, 64, 100])
def test_reductions_over_pixels(opcode: str, channels: int) -> None:
    attributes = {"axes": (2, 3), "keepdims": 1}
    inputs = [_numbers(3, channels, 7, 9)]
    used = _check(opcode, inputs, ("last",) * 3, (3, channels, 1, 1), attributes)
    assert used == {f"{opcode}_f32"}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.bool_])
@pytest.mark.parametrize("form", FORMATS[:3])
@pytest.mark.parametrize("groups", [1, 4, 5])
def test_shuffled_channels(dtype: type, form: str, groups: int) -> None:
    """A Reshape whose operand is a view of groups that were exchanged."""
    x: Array = (_numbers(2, groups * 7, 3, 5) * 100).astype(dtype)
    turned = x.reshape(2, groups, 7, 3, 5).transpose(0, 2, 1, 3, 4)
    for name in variants():
        library = find_library(name)
        assert library is not None
        out: Array = np.zeros((2, 3, 5, groups * 9), dtype).transpose(0, 3, 1, 2)[:, groups * 2 :]
        out = out if form.endswith("last") else np.zeros(x.shape, dtype)
        assert _run(library, "Reshape", [turned], out, {"shape": x.shape}, 2) == "Move"
        np.testing.assert_array_equal(out, turned.reshape(x.shape))
