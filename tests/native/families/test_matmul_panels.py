"""Products with weights in panels: as with plain ones, bit for bit, and without a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import popc_runtime
from popc_runtime.format import (
    ArchiveFile,
    Array,
    Packing,
    ProgramImage,
    Slot,
    decode_program,
    pack_panels,
)
from popc_runtime.native import NativeProgram, find_library
from popc_runtime.native.forms import product_record
from popc_runtime.native.library import variants
from popc_runtime.native.views import as_view
from tests.native.panels import model_of, saved

_SIZES = st.sampled_from([1, 2, 15, 16, 17, 31, 32, 33, 48, 49, 130, 300])


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@given(
    batch=st.lists(st.integers(1, 3), max_size=1),
    m=st.sampled_from([1, 2, 3, 4, 5, 6, 7, 12, 13, 70]),
    k=_SIZES,
    n=_SIZES,
    threads=st.integers(1, 2),
    packing=st.sampled_from([Packing.COLUMNS, Packing.ROWS]),
)
@settings(max_examples=80, deadline=None)
def test_kernels(batch: list[int], m: int, k: int, n: int, threads: int, packing: Packing) -> None:
    left, right, bias = _numbers(*batch, m, k), _numbers(k, n, seed=1), _numbers(n, seed=2)
    packed = pack_panels(
        np.ascontiguousarray(right.T) if packing is Packing.ROWS else right, packing
    )
    panels = as_view(packed).of_memory((k, n))
    ways = ((as_view(right), False), (as_view(right), True), (panels, True))
    for variant in variants():
        results = [np.empty((*batch, m, n), np.float32) for _ in ways]
        for out, (way, constant) in zip(results, ways, strict=True):
            record = product_record(
                as_view(left),
                way,
                as_view(out),
                bias=as_view(bias),
                constant=constant,
                packed=way is panels,
            )
            library = find_library(variant)
            assert library is not None
            NativeProgram(library, [record], (packed, out), threads).run()
        assert np.array_equal(results[0], results[1])
        assert np.array_equal(results[0], results[2])


def _image(path: Path) -> ProgramImage:
    with ArchiveFile.open(path) as archive:
        return decode_program(archive.read("program"))


def _packed(path: Path) -> list[Slot]:
    return [slot for slot in _image(path).slots if slot.packing is not Packing.NONE]


def _three_products(k: int, n: int) -> bytes:
    """A MatMul, a Gemm and one of a transposed matrix."""
    make = helper.make_node
    nodes = [
        make("MatMul", ["x", "v"], ["a"]),
        make("Gemm", ["a", "w", "b"], ["c"]),
        make("Relu", ["c"], ["d"]),
        make("Gemm", ["d", "u"], ["y"], transB=1),
    ]
    arrays = [_numbers(k, n), _numbers(n, k, seed=1), _numbers(n, k, seed=2), _numbers(k, seed=3)]
    return model_of(nodes, dict(zip("vwub", arrays, strict=True)), 3, k)


@pytest.mark.parametrize("weights", ["mmap", "compressed"])
@pytest.mark.parametrize(("k", "n"), [(1, 1), (15, 17), (16, 33), (33, 16), (17, 1), (64, 160)])
def test_programs(
    k: int, n: int, weights: str, tmp_path: Path, unpacked: list[tuple[int, ...]]
) -> None:
    model, x = _three_products(k, n), _numbers(3, k, seed=4)
    results: dict[tuple[bool, str], Array] = {}
    for pack in (False, True):
        path = saved(model, tmp_path, pack_weights=pack, weights=weights)
        found = [slot.packing for slot in _packed(path)]
        expected = [Packing.COLUMNS, Packing.COLUMNS, Packing.ROWS] if pack else []
        assert sorted(found) == expected or min(k, n) == 1  # a product by one number is none
        for engine in ("native", "numpy"):
            if engine == "native" and find_library() is None:
                continue
            unpacked.clear()
            with popc_runtime.load(path, engine=engine, threads=1) as program:
                results[pack, engine] = program.run({"x": x})["y"]
            assert len(unpacked) == (len(found) if engine == "numpy" else 0)
    for engine in ("native", "numpy"):
        if (True, engine) in results:
            assert np.array_equal(results[True, engine], results[False, engine])


_W = _numbers(20, 20, seed=1)


@pytest.mark.parametrize(
    "nodes",
    [
        [("MatMul", ["x", "w"], {}), ("Gemm", ["t0", "w"], {"transB": 1})],
        [("MatMul", ["x", "w"], {}), ("Add", ["t0", "w"], {})],
        [("MatMul", ["w", "x"], {})],
        [("Gemm", ["x", "w"], {"alpha": 2.0})],
        [("MatMul", ["w", "w"], {}), ("Mul", ["t0", "x"], {})],
    ],
)
def test_whoever_else_reads_weights_keeps_them_plain(nodes: list[Any], tmp_path: Path) -> None:
    made = [
        helper.make_node(kind, inputs, [f"t{number}"], **attributes)
        for number, (kind, inputs, attributes) in enumerate(nodes)
    ]
    path = saved(model_of(made, {"w": _W}, 20, 20), tmp_path, fold_limit_bytes=0)
    assert _packed(path) == []


def test_readers_that_agree_share_panels(tmp_path: Path) -> None:
    make = helper.make_node
    nodes = [make("MatMul", ["x", "w"], ["a"]), make("MatMul", ["a", "w"], ["y"])]
    path = saved(model_of(nodes, {"w": _W}, 20, 20), tmp_path)
    image = _image(path)
    assert len(_packed(path)) == 1
    assert image.constant_bytes == 20 * 32 * 4  # with what is missing in the second panel


@pytest.mark.parametrize("images", [1, 2, 7])
def test_convolutions_of_single_pixels(
    images: int, tmp_path: Path, unpacked: list[tuple[int, ...]]
) -> None:
    """A squeeze-and-excitation: products on whole images, and a convolution that stays plain."""
    make = helper.make_node
    nodes = [
        make("GlobalAveragePool", ["x"], ["a"]),
        make("Conv", ["a", "w", "b"], ["c"]),
        make("Relu", ["c"], ["d"]),
        make("Conv", ["d", "v"], ["e"]),
        make("Mul", ["x", "e"], ["f"]),
        make("Conv", ["f", "u"], ["y"]),
    ]
    arrays = [
        _numbers(24, 40, 1, 1),
        _numbers(40, 24, 1, 1, seed=1),
        _numbers(9, 40, 1, 1, seed=2),
        _numbers(24),
    ]
    model = model_of(nodes, dict(zip("wvub", arrays, strict=True)), images, 40, 5, 5)
    x = _numbers(images, 40, 5, 5, seed=9)
    results: dict[tuple[bool, str], Array] = {}
    for pack in (False, True):
        path = saved(model, tmp_path, pack_weights=pack)
        shapes = [slot.shape for slot in _packed(path)]
        assert sorted(shapes) == ([(24, 40, 1, 1), (40, 24, 1, 1)] if pack else [])
        for engine in ("native", "numpy"):
            if engine == "native" and find_library() is None:
                continue
            unpacked.clear()
            with popc_runtime.load(path, engine=engine) as program:
                results[pack, engine] = program.run({"x": x})["y"]
            assert len(unpacked) == (len(shapes) if engine == "numpy" else 0)
    for engine in ("native", "numpy"):
        if (True, engine) in results:
            assert np.array_equal(results[True, engine], results[False, engine])
