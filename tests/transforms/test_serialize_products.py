"""Products in parts: results, gradients, temporary memory, wrong annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from onnx import helper, numpy_helper, parser

import popc
import popc_runtime
from popc.autodiff import differentiate
from popc.ir import Graph, OpSettings, ProductCut, Tensor
from popc.ops.build import build
from popc.reporting.estimation import costs_of
from popc.request import CompileRequest
from popc.study.effects import explain_options
from popc.transforms.serialize_products import SerializeProducts
from popc_runtime.errors import ModelError, OptionError
from popc_runtime.format import Array, DType
from tests.support.compiling import planned_model
from tests.support.random_graphs import interpret
from tests.support.small_graphs import SmallGraph
from tests.training.deep import compiled, deep_mlp

_MODES = ("input_channels", "reducing_dim", "output_channels")


def _cut(graph: Graph, *, enabled: bool = True) -> int:
    outcome = SerializeProducts(enabled)(graph, check=True)
    return outcome.changes


def _product(
    small: SmallGraph, op_type: str, operands: list[Tensor], cut: ProductCut, **attributes: Any
) -> Tensor:
    return build(small.graph, op_type, operands, attributes, settings=OpSettings(cut=cut)).output


@st.composite
def _products(draw: DrawFn) -> tuple[Graph, str]:
    """A product of random shapes, with a factor that divides what is cut."""
    small = SmallGraph()
    factor = draw(st.integers(2, 3))
    mode = draw(st.sampled_from(_MODES))
    rows, depth, columns = (draw(st.integers(1, 3)) for _ in range(3))
    rows *= factor if mode == "input_channels" else 1
    depth *= factor if mode == "reducing_dim" else 1
    columns *= factor if mode == "output_channels" else 1
    dtype = draw(st.sampled_from([DType.FLOAT32, DType.FLOAT16]))
    cut = ProductCut(mode, factor, keep_precision=draw(st.booleans()))
    if draw(st.booleans()):
        batches = draw(st.sampled_from([((), ()), ((2,), ()), ((2,), (2,)), ((1, 3), (2, 1))]))
        a = small.input(*batches[0], rows, depth, dtype=dtype)
        b = small.input(*batches[1], depth, columns, dtype=dtype)
        return small.output(_product(small, "MatMul", [a, b], cut)), mode
    turned_a, turned_b = draw(st.booleans()), draw(st.booleans())
    operands = [
        small.input(*((depth, rows) if turned_a else (rows, depth)), dtype=dtype),
        small.input(*((columns, depth) if turned_b else (depth, columns)), dtype=dtype),
    ]
    offsets: list[tuple[int, ...]] = [(), (columns,), (1, columns), (rows, 1), (rows, columns)]
    offset = draw(st.sampled_from([None, *offsets]))
    if offset is not None:
        operands.append(small.input(*offset, dtype=dtype))
    attributes = {"transA": int(turned_a), "transB": int(turned_b), "alpha": 0.5, "beta": 2.0}
    return small.output(_product(small, "Gemm", operands, cut, **attributes)), mode


def _feeds(graph: Graph) -> list[Array]:
    random = np.random.default_rng(0)
    return [
        random.standard_normal(tensor.type.shape).astype(tensor.type.dtype.storage)
        for tensor in graph.inputs
    ]


@settings(deadline=None, max_examples=120)
@given(case=_products())
def test_parts_give_the_product(case: tuple[Graph, str]) -> None:
    graph, mode = case
    feeds = _feeds(graph)
    (expected,) = interpret(graph, feeds)
    assert _cut(graph) == 1
    assert _cut(graph) == 0
    (actual,) = interpret(graph, feeds)
    half = actual.dtype == np.float16
    if mode == "reducing_dim":
        np.testing.assert_allclose(
            actual, expected, rtol=2e-3 if half else 1e-5, atol=1e-2 if half else 1e-5
        )
    else:  # sums have the same addends, but BLAS may add those of narrow matrices in another order
        np.testing.assert_allclose(actual, expected, rtol=1e-3 if half else 1e-6, atol=1e-6)


def test_precision_is_kept() -> None:
    """Parts of a sum are rounded once."""
    errors = {}
    for keep in (False, True):
        small = SmallGraph()
        cut = ProductCut("reducing_dim", 16, keep)
        operands = [
            small.input(1, 64, dtype=DType.FLOAT16),
            small.input(64, 8, dtype=DType.FLOAT16),
        ]
        graph = small.output(_product(small, "MatMul", operands, cut))
        feeds = _feeds(graph)
        _cut(graph)
        exact = feeds[0].astype(np.float64) @ feeds[1].astype(np.float64)
        errors[keep] = np.abs(interpret(graph, feeds)[0] - exact).max()
    assert errors[True] < errors[False]


@pytest.mark.parametrize(("mode", "shared"), [("input_channels", 1), ("output_channels", 0)])
def test_sums_of_gradients_keep_precision(mode: str, shared: int) -> None:
    """The gradient of what all parts share is added up in float32, and rounded once."""
    errors = {}
    for keep in (False, True):
        small = SmallGraph()
        shapes = [(64, 8), (8, 4)] if shared else [(4, 8), (8, 64)]
        operands = [small.input(*shape, dtype=DType.FLOAT16) for shape in shapes]
        seed = small.input(shapes[0][0], shapes[1][1], dtype=DType.FLOAT16)
        graph = small.graph
        product = _product(small, "MatMul", operands, ProductCut(mode, 16, keep))
        small.output(product)
        assert _cut(graph) == 1
        found = differentiate(graph, {graph.outputs[0]: seed}, operands)
        graph.add_output("gradient", found[operands[shared]])
        x, y, given = _feeds(graph)
        exact = x.T.astype(np.float64) @ given if shared else given @ y.T.astype(np.float64)
        errors[keep] = np.abs(interpret(graph, [x, y, given])[1] - exact).mean()
    assert errors[True] < errors[False]


def _model() -> onnx.ModelProto:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[8,12] x) => (float[8,6] y) '
        "<float[12,6] w> { [up] h = MatMul (x, w) [act] y = Relu (h) }"
    )
    del model.graph.initializer[:]
    weights = np.random.default_rng(0).standard_normal((12, 6)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return model


def _run(folder: Path, **options: Any) -> Array:
    path = popc.compile(_model(), options={"verify_ir": True, **options}).save(
        folder / "m.popx", force=True
    )
    x = np.random.default_rng(1).standard_normal((8, 12)).astype(np.float32)
    return popc_runtime.load(path).run({"x": x})["y"]


def _rule(mode: str, factor: int, nodes: str = "*", **more: Any) -> dict[str, Any]:
    return {
        "annotate": [
            {
                "nodes": nodes,
                "serialize_matmul_mode": mode,
                "serialize_matmul_factor": factor,
                **more,
            }
        ]
    }


@pytest.mark.parametrize(
    ("mode", "factor"),
    [("output_channels", 3), ("B_ROWS", 2), ("input_channels", 4), ("a_rows_b_columns", 6)],
)
def test_results_of_programs(tmp_path: Path, mode: str, factor: int) -> None:
    expected = _run(tmp_path)
    np.testing.assert_allclose(_run(tmp_path, **_rule(mode, factor)), expected, rtol=1e-5)
    (effect,) = explain_options(CompileRequest.of(_model(), options=_rule(mode, factor)))
    assert effect.added["MatMul"] == factor - 1


def test_a_cut_product_needs_less_temporary_memory() -> None:
    model = _model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4096
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 4096
    model.graph.initializer[0].CopyFrom(
        numpy_helper.from_array(np.ones((12, 768), np.float32), "w")
    )
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 768
    largest = {}
    for label, options in {"whole": {}, "cut": _rule("output_channels", 8)}.items():
        steps = costs_of(planned_model(model, options)).memory[0].steps
        largest[label] = max(step.temporary for step in steps)
    assert largest["cut"] < largest["whole"]


def test_attributes_of_popart() -> None:
    model = _model()
    node = model.graph.node[0]
    node.attribute.extend(
        helper.make_attribute(name, value)
        for name, value in {
            "__serialize_matmul_mode": "output_channels",
            "__serialize_matmul_factor": 2,
            "__serialize_matmul_precision": 1,
        }.items()
    )
    assert _count(planned_model(model).graph) == 2
    assert _count(planned_model(model, {"enableSerializedMatmuls": False}).graph) == 1


@pytest.mark.parametrize("mode", _MODES)
def test_gradients_are_cut_too(mode: str) -> None:
    plain = compiled(deep_mlp(2))
    cut = compiled(deep_mlp(2), **_rule(mode, 2))
    assert _count(cut.graph) == 2 * _count(plain.graph)


def _count(graph: Graph) -> int:
    return Counter(op.op_type for part in graph.walk() for op in part.ops)["MatMul"]


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"serialize_matmul_mode": "output_channels", "serialize_matmul_factor": 5},
         "up: of what output_channels cuts, 6 make 3 parts of 2, not 5"),
        ({"serialize_matmul_mode": "output_channels"}, "needs __serialize_matmul_factor"),
        ({"serialize_matmul_factor": 2}, "__serialize_matmul_factor needs __serialize_matmul_mode"),
        ({"serialize_matmul_mode": "rows", "serialize_matmul_factor": 2}, "must be one of"),
        ({"op_type": "Relu", "serialize_matmul_mode": "reducing_dim",
          "serialize_matmul_factor": 2}, "is for MatMul, Gemm, but none is selected"),
    ],
)  # fmt: skip
def test_mistakes_are_reported(settings_: Mapping[str, Any], message: str) -> None:
    with pytest.raises((ModelError, OptionError)) as caught:
        popc.compile(_model(), options={"annotate": [{"nodes": "*", **settings_}]})
    assert message in "\n".join([caught.value.message, *caught.value.details])


def test_an_attribute_of_another_operator_is_reported() -> None:
    model = _model()
    model.graph.node[1].attribute.append(helper.make_attribute("__serialize_matmul_factor", 2))
    with pytest.raises(ModelError) as caught:
        popc.compile(model)
    assert "is for MatMul or Gemm, not for Relu" in "\n".join(caught.value.details)
