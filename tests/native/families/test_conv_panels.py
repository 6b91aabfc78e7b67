"""Convolutions with weights in panels: as with plain ones, bit for bit, and without a copy."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import popc_runtime
from popc_runtime.format import (
    ArchiveFile,
    Array,
    Packing,
    Region,
    Slot,
    decode_program,
)
from popc_runtime.native import (
    Library,
    NativeFailure,
    NativeProgram,
    encode,
    find_library,
    variants,
    winograd,
)
from popc_runtime.native.encoders.conv import packing_of_weights
from popc_runtime.native.record import Record, activation_words, tensor_words
from popc_runtime.native.views import PackedView, as_view
from tests.native.bindings import bound, viewed
from tests.native.panels import in_panels, model_of, saved, with_panels

pytestmark = pytest.mark.skipif(not variants(), reason="there are no native kernels")


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def _last(image: Array) -> Array:
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(image, 1, -1)), -1, 1)


def _compare(inputs: list[Array | None], shape: tuple[int, ...], attributes: Any) -> set[str]:
    """Results of all variants with plain and with packed weights; which kernels there were."""
    x, w = inputs[:2]
    assert x is not None
    assert w is not None
    packed, used = in_panels(w, Packing.ROWS), set()
    for variant in variants():
        library = find_library(variant)
        assert library is not None
        results = []
        for threads, panels in ((1, False), (1, True), (2, True)):
            out = _last(np.full(shape, 77, np.float32))
            binding = viewed(bound(inputs, [out], attributes, (1,)))
            if panels:
                assert packing_of_weights(binding) is Packing.ROWS
                binding = with_panels(binding, packed, Packing.ROWS)
            record = encode("Conv", binding, library.numbers)
            assert record is not None
            NativeProgram(library, [record], (inputs, packed, out), threads).run()
            results.append(out.tobytes())
            used.add(record.kernel)
        assert len(set(results)) == 1
    return used


@st.composite
def _convolutions(draw: st.DrawFn) -> tuple[list[Array | None], tuple[int, ...], Any]:
    rank, group = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 1, 2, 3]))
    outs = 16 * draw(st.integers(1, 9)) if group > 1 else draw(st.integers(2, 150))
    each = draw(st.sampled_from([1, 3, 8, 20, 600]))
    taps = [draw(st.sampled_from([1, 2, 3])) for _ in range(rank)]
    most = 24 if rank < 3 else 6
    results = [draw(st.integers(2, most)) for _ in range(rank)]
    stride = draw(st.integers(1, 2))
    sizes = [(y - 1) * stride + t for y, t in zip(results, taps, strict=True)]
    x = _last(_numbers(1, max(2, each * group), *sizes))
    w = _numbers(outs * group, max(2, each * group) // group, *taps, seed=1)
    shape = (1, outs * group, *results)
    residual = _last(_numbers(*shape, seed=3)) if draw(st.booleans()) else None
    bias = _numbers(outs * group, seed=2) if draw(st.booleans()) else None
    attributes = {"strides": (stride,) * rank, "group": group, "winograd": 0}
    return [x, w, bias, residual], shape, attributes


@given(_convolutions())
@settings(max_examples=60, deadline=None)
def test_sums_of_products(problem: tuple[list[Array | None], tuple[int, ...], Any]) -> None:
    _compare(*problem)


@pytest.mark.parametrize("outs", [8, 16, 24, 40, 48, 56, 72, 80, 104, 130])
@pytest.mark.parametrize(("channels", "taps", "size"), [(40, 1, 3), (40, 3, 17), (300, 3, 5)])
def test_strips_of_any_width(outs: int, channels: int, taps: int, size: int) -> None:
    """Few pixels, many, and long windows divide channels differently."""
    x, w = _last(_numbers(1, channels, size, size)), _numbers(outs, channels, taps, taps, seed=1)
    attributes = {"pads": (taps // 2,) * 4, "winograd": 0, "activation": "Relu"}
    used = _compare([x, w, _numbers(outs, seed=2), None], (1, outs, size, size), attributes)
    assert used == {"ConvDirect_f32"}


@pytest.mark.parametrize(("channels", "outs"), [(16, 1), (16, 40), (33, 48), (40, 17)])
def test_winograd(channels: int, outs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd, "winograd_wins", lambda *_: True)
    x, w = _last(_numbers(1, channels, 9, 10)), _numbers(outs, channels, 3, 3, seed=1)
    used = _compare([x, w, None, None], (1, outs, 9, 10), {"pads": (1,) * 4})
    assert used == {"WinogradConv_f32"}


@pytest.mark.parametrize(("taps", "size"), [((5,), (61,)), ((1, 3), (3, 40)), ((11, 1), (50, 2))])
@pytest.mark.parametrize(("channels", "outs"), [(16, 1), (33, 48), (40, 17)])
def test_winograd_along_one_axis(
    channels: int,
    outs: int,
    taps: tuple[int, ...],
    size: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lines among them: another view of packed weights would unpack them."""
    monkeypatch.setattr(winograd, "winograd_rows_win", lambda *_: True)
    monkeypatch.setattr(PackedView, "address", property(_refuse))
    x, w = _last(_numbers(1, channels, *size)), _numbers(outs, channels, *taps, seed=1)
    pads = tuple(tap // 2 for tap in taps) * 2
    used = _compare([x, w, None, None], (1, outs, *size), {"pads": pads})
    assert used == {"WinogradConv_f32"}


def _refuse(view: PackedView) -> int:
    raise AssertionError(f"{view.shape} is unpacked")


@pytest.mark.parametrize(
    ("kernel", "groups", "outs", "shift"),
    [
        ("ConvDirect_f32", 2, 48, 0),  # panels would end within a group
        ("ConvDirect_f32", 1, 48, 1),  # lines of the cache begin elsewhere
        ("Conv_f32", 1, 48, 0),
        ("ConvLines_f32", 1, 48, 0),
        ("DepthwiseConv_f32", 32, 32, 0),
        ("DepthwiseLast_f32", 32, 32, 0),
        ("ConvWeights_f32", 1, 48, 0),
    ],
)
def test_panels_that_a_kernel_does_not_read(
    library: Library, kernel: str, groups: int, outs: int, shift: int
) -> None:
    x, w, out = _numbers(1, 32, 8, 8), _numbers(outs, 32 // groups, 3, 3), _numbers(1, outs, 6, 6)
    packed = in_panels(_numbers(outs + 16, 32, 3, 3), Packing.ROWS)
    panels = as_view(packed).of_memory(w.shape, None, shift * 4)
    geometry = (groups, 1, 1, 0, 1, 1, 0)
    rest = (*tensor_words(as_view(out)), *tensor_words(None) * 2, *geometry)
    rest += activation_words(0, ())
    for is_packed in (False, True):
        right = tensor_words(panels if is_packed else as_view(w), constant=True, packed=is_packed)
        record = Record(kernel, (*tensor_words(as_view(x)), *right, *rest))
        if not is_packed:
            NativeProgram(library, [record], (x, w, out), 1).run()
            continue
        with pytest.raises(NativeFailure, match="not supported"):
            NativeProgram(library, [record], (x, panels, out), 1)


def test_panels_across_groups_are_unpacked(library: Library) -> None:
    """Whoever wrote the archive thought otherwise of what the kernel reads."""
    x, w = _last(_numbers(1, 64, 6, 6)), _numbers(48, 32, 3, 3, seed=1)
    results = []
    for is_packed in (False, True):
        out = _last(np.empty((1, 48, 4, 4), np.float32))
        binding = viewed(bound([x, w], [out], {"group": 2}, (1,)))
        if is_packed:
            view = PackedView(as_view(w), Packing.ROWS, lambda: as_view(w).address)
            binding = replace(binding, inputs=(binding.inputs[0], view))
        record = encode("Conv", binding, library.numbers)
        assert record is not None
        assert record.kernel == "ConvDirect_f32"
        NativeProgram(library, [record], (x, w, out), 1).run()
        results.append(out)
    assert np.array_equal(results[0], results[1])


# -- programs --------------------------------------------------------------------------------------


def _weights(path: Path) -> list[Slot]:
    """Constants of two dimensions at least."""
    with ArchiveFile.open(path) as archive:
        slots = decode_program(archive.read("program")).slots
    return [slot for slot in slots if slot.region is Region.CONSTANT and len(slot.shape) > 2]


def _network(rank: int) -> tuple[bytes, Array]:
    """Convolutions of all kinds, one after another, on images of ``rank`` axes."""
    make = helper.make_node
    kinds = [(24, 3, 1), (24, 24, 24), (40, 24, 1), (64, 40, 4), (17, 64, 1)]
    nodes, arrays, last = [], {}, "x"
    for number, (outs, ins, group) in enumerate(kinds):
        taps = [1 if number in {2, 4} else 3] * rank
        arrays[f"w{number}"] = _numbers(outs, ins // group, *taps, seed=number) / 4
        arrays[f"b{number}"] = _numbers(outs, seed=9)
        pads = [tap // 2 for tap in taps] * 2
        operands = [last, f"w{number}", f"b{number}"]
        nodes.append(make("Conv", operands, [f"c{number}"], group=group, pads=pads))
        last = f"r{number}"
        nodes.append(make("Relu", [f"c{number}"], [last]))
    sizes = (12,) * rank
    return model_of(nodes, arrays, 2, 3, *sizes), _numbers(2, 3, *sizes, seed=5)


@pytest.mark.parametrize("weights", ["mmap", "compressed"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_networks(rank: int, weights: str, tmp_path: Path, unpacked: list[tuple[int, ...]]) -> None:
    model, x = _network(rank)
    results: dict[tuple[bool, str], Array] = {}
    for pack in (False, True):
        path = saved(model, tmp_path, pack_weights=pack, weights=weights)
        found = [array for array in _weights(path) if array.packing is not Packing.NONE]
        assert all(got.packing is Packing.ROWS for got in found)
        assert len(found) >= (2 if pack and rank == 2 else 0)
        assert pack or not found
        for engine in ("native", "numpy"):
            unpacked.clear()
            with popc_runtime.load(path, engine=engine) as program:
                (results[pack, engine],) = program.run({"x": x}).values()
            assert len(unpacked) == (len(found) if engine == "numpy" else 0)
    for engine in ("native", "numpy"):
        assert np.array_equal(results[True, engine], results[False, engine])


def _pair(second: dict[str, Any], size: int) -> bytes:
    """Two convolutions 3 x 3 with the same weights; ``second``: attributes of the other."""
    make = helper.make_node
    nodes = [
        make("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        make("Conv", ["x", "w"], ["c"], **second),
        make("ReduceMean", ["c"], ["m"], axes=[2, 3]),
        make("Add", ["a", "m"], ["y"]),
    ]
    return model_of(nodes, {"w": _numbers(32, 32, 3, 3) / 8}, 1, 32, size, size)


@pytest.mark.parametrize(
    ("second", "size", "packed"),
    [
        ({"pads": [1] * 4}, 8, True),
        ({"pads": [1] * 4, "strides": [2, 2]}, 40, True),  # one by Winograd's algorithm
        ({"pads": [0] * 4}, 3, False),  # one whose window is all of the image, channel by channel
    ],
)
def test_readers_of_the_same_weights(
    second: dict[str, Any], size: int, tmp_path: Path, unpacked: list[Any], *, packed: bool
) -> None:
    model, x = _pair(second, size), _numbers(1, 32, size, size)
    results = []
    for pack in (False, True):
        path = saved(model, tmp_path, pack_weights=pack)
        (weights,) = _weights(path)
        assert (weights.packing is Packing.ROWS) == (pack and packed)
        assert prod(weights.shape) == 32 * 32 * 9
        with popc_runtime.load(path, engine="native") as program:
            results.append(program.run({"x": x})["y"])
    assert np.array_equal(results[0], results[1])
    assert unpacked == []


def test_other_readers_keep_weights_plain(tmp_path: Path) -> None:
    make = helper.make_node
    nodes = [
        make("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        make("ReduceMax", ["w"], ["m"], axes=[1, 2, 3], keepdims=1),
        make("Add", ["a", "m"], ["y"]),
    ]
    model = model_of(nodes, {"w": _numbers(1, 32, 3, 3)}, 1, 32, 9, 9)
    (weights, *_) = _weights(saved(model, tmp_path, fold_limit_bytes=0))
    assert weights.packing is Packing.NONE


def test_weights_that_are_results(tmp_path: Path) -> None:
    make = helper.make_node
    nodes = [make("Conv", ["x", "w"], ["a"], pads=[1] * 4), make("Relu", ["a"], ["y"])]
    w = _numbers(32, 32, 3, 3)
    model = onnx.load_from_string(model_of(nodes, {"w": w}, 1, 32, 9, 9))
    model.graph.output.append(onnx.ValueInfoProto(name="w"))
    path = saved(model.SerializeToString(), tmp_path)
    for engine in ("native", "numpy"):
        with popc_runtime.load(path, engine=engine) as program:
            assert np.array_equal(program.run({"x": _numbers(1, 32, 9, 9)})["w"], w)
