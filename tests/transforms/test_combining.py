"""Products and lookups that become one: results, and what must stay apart."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from onnx import parser

import popc
import popc_runtime
from popc.ir import Graph, OpSettings, StepPart, Tensor
from popc.transforms.combine_convolutions import CombineConvolutions
from popc.transforms.combine_lookups import CombineLookups
from popc.transforms.combine_products import CombineProducts
from popc.transforms.dead_code import DeadCode
from popc_runtime.format import Array, DType
from tests.support.oracles import run_onnxruntime
from tests.support.pipeline import run_pipeline
from tests.support.random_graphs import interpret
from tests.support.small_graphs import SmallGraph

_PASSES = (CombineProducts(), CombineConvolutions(), CombineLookups())


def _feeds(graph: Graph) -> list[Array]:
    random = np.random.default_rng(2)
    return [
        random.integers(-3, 3, tensor.type.shape)
        if tensor.type.dtype is DType.INT64
        else random.standard_normal(tensor.type.shape).astype(tensor.type.dtype.storage)
        for tensor in graph.inputs
    ]


def _types(graph: Graph) -> Counter[str]:
    return Counter(op.op_type for op in graph.ops)


def _combined(graph: Graph) -> int:
    """Combine, and compare the results; how many ops are gone."""
    feeds = _feeds(graph)
    expected = interpret(graph, feeds)
    count = sum(pass_(graph, check=True).changes for pass_ in _PASSES)
    DeadCode()(graph, check=True)
    for ours, theirs in zip(interpret(graph, feeds), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    return count


def test_projections_of_one_operand() -> None:
    small = SmallGraph()
    x = small.input(5, 4)
    products = [
        small("MatMul", x, small.input(4, width), small.input(width)) for width in (3, 1, 6)
    ]
    graph = small.output(*(small("Neg", product) for product in products))
    assert _combined(graph) == 2
    assert _types(graph)["MatMul"] == 1


@pytest.mark.parametrize("turned", [0, 1])
def test_gemm(turned: int) -> None:
    small = SmallGraph()
    x = small.input(5, 4)
    attributes = {"transA": 0, "transB": turned, "alpha": 0.5, "beta": 2.0}
    shapes = [(3, 4), (2, 4)] if turned else [(4, 3), (4, 2)]
    products = [
        small("Gemm", x, small.input(*shape), small.input(5, sum(shape) - 4), **attributes)
        for shape in shapes
    ]
    graph = small.output(*products)
    assert _combined(graph) == 1
    assert _types(graph)["Gemm"] == 1


def test_operands_of_one_matrix() -> None:
    small = SmallGraph()
    w, b = small.input(4, 3), small.input(3)
    graph = small.output(
        *(small("MatMul", small.input(rows, 2, 4), w, b) for rows in (1, 5)),
        small("MatMul", small.input(2, 2, 4), w),  # without the bias
    )
    assert _combined(graph) == 1


def test_small_products_become_a_stack() -> None:
    small = SmallGraph()
    pairs = [(small.input(2, 3), small.input(3, 4)) for _ in range(5)]
    graph = small.output(*(small("MatMul", *pair) for pair in pairs))
    assert _combined(graph) == 4
    assert _types(graph)["MatMul"] == 1
    small = SmallGraph()
    pairs = [(small.input(64, 64), small.input(64, 64)) for _ in range(2)]
    assert _combined(small.output(*(small("MatMul", *pair) for pair in pairs))) == 0


def test_a_product_that_needs_another_stays() -> None:
    small = SmallGraph()
    x = small.input(4, 4)
    first = small("MatMul", x, small.input(4, 4))
    graph = small.output(small("MatMul", x, first))
    assert _combined(graph) == 0


def test_other_places_and_parts_stay_apart() -> None:
    for settings_ in (OpSettings(virtual_graph=1), OpSettings(part=StepPart.BACKWARD)):
        small = SmallGraph()
        x, table, rows = small.input(4, 4), small.input(9, 3), small.input(2, dtype=DType.INT64)
        ops = [small.op("MatMul", x, small.input(4, 4)) for _ in range(2)]
        ops += [small.op("Gather", table, rows, axis=0) for _ in range(2)]
        for op in ops[::2]:
            op.settings = settings_
        assert _combined(small.output(*(op.output for op in ops))) == 0


def test_ops_exclude_it() -> None:
    small = SmallGraph()
    x = small.input(4, 4)
    ops = [small.op("MatMul", x, small.input(4, 4)) for _ in range(3)]
    ops[0].settings = replace(ops[0].settings, exclude_patterns=("combine_products",))
    assert _combined(small.output(*(op.output for op in ops))) == 1


@pytest.mark.parametrize("bias", [False, True])
def test_convolutions_of_one_operand(*, bias: bool) -> None:
    small = SmallGraph()
    x = small.input(2, 4, 5, 6)
    window: dict[str, Any] = {
        "strides": (1, 2),
        "pads": (1, 0, 1, 0),
        "dilations": (1, 1),
        "group": 1,
    }
    results = [
        small(
            "Conv",
            x,
            small.input(channels, 4, 3, kernel),
            *([small.input(channels)] if bias else []),
            **window,
        )
        for channels, kernel in ((3, 1), (1, 1), (2, 2))  # the last has another window
    ]
    graph = small.output(*results)
    assert _combined(graph) == 1
    assert _types(graph)["Conv"] == 2


def test_lookups() -> None:
    small = SmallGraph()
    table = small.input(9, 6)
    lists = [small.input(*shape, dtype=DType.INT64) for shape in ((4,), (2, 3), (1,))]
    found = [small("Gather", table, indices, axis=1) for indices in lists]
    graph = small.output(*found)
    assert _combined(graph) == 2
    assert _types(graph)["Gather"] == 1


@st.composite
def _graphs(draw: DrawFn) -> Graph:
    """Products and lookups among results of each other."""
    small = SmallGraph()
    pool: list[Tensor] = [small.input(3, 3) for _ in range(3)]
    rows = st.lists(st.integers(-3, 2), min_size=3, max_size=3)
    places = [small.constant(draw(rows), DType.INT64) for _ in range(2)]
    for _ in range(draw(st.integers(2, 10))):
        a, b = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        kind = draw(st.integers(0, 3))
        if kind == 0:
            pool.append(
                small("Gather", a, draw(st.sampled_from(places)), axis=draw(st.integers(0, 1)))
            )
        elif kind == 1:
            pool.append(small("Tanh", small("Add", a, b)))
        else:
            pool.append(small("Tanh", small("MatMul", a, b)))
    return small.output(*{pool[-1]: None, draw(st.sampled_from(pool[3:])): None})


@settings(deadline=None, max_examples=100)
@given(graph=_graphs())
def test_random_graphs(graph: Graph) -> None:
    _combined(graph)
    feeds = {t.name: array for t, array in zip(graph.inputs, _feeds(graph), strict=True)}
    expected = interpret(graph, list(feeds.values()))
    for ours, theirs in zip(run_pipeline(graph, feeds).values(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def _model() -> onnx.ModelProto:
    return parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> '
        "g (float[2,3] x, int64[4] i, int64[2,2] j) => (float[2,2] y, float[2,1] z, float[4,2] a, "
        "float[2,2,2] b) <float[3,2] w = {1.0, -2.0, 3.0, 0.5, 0.0, 4.0}, float[2] c = {1.0, 2.0}, "
        "float[3,1] v = {2.0, 1.0, -1.0}, float[1] d = {0.5}> "
        "{ p = MatMul (x, w) y = Add (p, c) q = MatMul (x, v) z = Add (q, d) "
        "a = Gather (w, i) b = Gather (w, j) }"
    )


@pytest.mark.parametrize("level", ["no_patterns", "minimal", "default", "all"])
def test_programs(tmp_path: Path, level: str) -> None:
    feeds: dict[str, Array] = {
        "x": np.arange(6, dtype=np.float32).reshape(2, 3),
        "i": np.array([0, 2, 1, -1]),
        "j": np.array([[1, 1], [0, 2]]),
    }
    options = {
        "combine_matmuls": True,
        "combine_embedding_lookups": True,
        "patterns": level,
        "verify_ir": True,
    }
    path = popc.compile(_model(), options=options).save(tmp_path / "m.popx")
    expected = run_onnxruntime(_model(), feeds)
    for ours, theirs in zip(popc_runtime.load(path).run(feeds).values(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
