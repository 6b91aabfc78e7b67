"""Models in float32 that compute in float16, as an option asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

import popc
import popc_runtime
from popc_runtime import VariableRole
from popc_runtime.format import Array, DType
from samples import networks
from tests.support.compiling import CHECKED, planned_model
from tests.training.narrow import BATCH, in_type, losses, trained

_SGD = {"type": "sgd", "learning_rate": 0.1, "momentum": 0.9}


def _compiled(model: onnx.ModelProto, **options: Any) -> popc_runtime.Executable:
    dims = {"batch": BATCH} if "batch" in str(model.graph.input) else None
    archive = popc.compile(model, dims=dims, options={**CHECKED, **options})
    return popc_runtime.load(archive.to_bytes())


@pytest.mark.parametrize(
    ("network", "precision"), [("digits_mlp", "float16"), ("digits_cnn", "mixed")]
)
def test_results_are_those_of_the_model_in_float16(network: str, precision: str) -> None:
    """To the bit; and near to those of float32."""
    model = getattr(networks, network)()
    program = _compiled(model, precision=precision)
    spec = program.inputs[0]
    assert {spec.dtype, program.outputs[0].dtype} == {DType.FLOAT32}
    x = np.random.default_rng(0).random(spec.shape).astype(np.float32)
    (found,) = program.run({spec.name: x}).values()
    (narrow,) = _compiled(in_type(model, "float16")).run({spec.name: x.astype(np.float16)}).values()
    np.testing.assert_array_equal(found, narrow.astype(np.float32))
    (wide,) = _compiled(model).run({spec.name: x}).values()
    assert 0 < np.abs(found - wide).max() < 0.01 * np.abs(wide).max()


@pytest.mark.parametrize("precision", ["float16", "mixed"])
def test_training_follows_that_in_float32(precision: str, tmp_path: Path) -> None:
    exact = losses(trained(tmp_path, networks.digits_mlp(), _SGD), 12)
    program = trained(tmp_path, networks.digits_mlp(), _SGD, precision=precision)
    found = losses(program, 12)
    assert (found != exact).any()
    np.testing.assert_allclose(found, exact, atol=0.03 * exact.max())
    kept = program.state.read(VariableRole.WEIGHT).values()
    wanted = np.float16 if precision == "float16" else np.float32
    assert {weight.dtype for weight in kept} == {np.dtype(wanted)}


def test_gradients_are_float16_and_updates_as_the_weights_are() -> None:
    planned = planned_model(
        networks.digits_mlp(),
        {"precision": "mixed"},
        dims={"batch": BATCH},
        train={
            "loss": {"type": "cross_entropy", "input": "logits", "label": "label"},
            "optimizer": _SGD,
        },
    )
    products = [op for op in planned.graph.ops if op.op_type in ("MatMul", "Gemm")]
    assert len(products) > 4
    assert {op.output.type.dtype for op in products} == {DType.FLOAT16}
    updates = [op for op in planned.graph.ops if op.op_type == "CopyVarUpdate"]
    assert {op.operand(0).type.dtype for op in updates} == {DType.FLOAT32}


def _parsed(text: str, **weights: Array) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]>\n{text}'))
    model.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
    return model


def test_constants_stay_finite_and_do_not_vanish() -> None:
    """A mask of -3e38 times 0, and a divisor of 1e-12, make no NaN."""
    model = _parsed(
        "g (float[4] x) => (float[4] y) { m = Mul(x, low) d = Add(x, tiny) y = Div(m, d) }",
        low=np.array(-3e38, np.float32),
        tiny=np.array(1e-12, np.float32),
    )
    found = _compiled(model, precision="float16").run(x=np.array([0, 1, 2, 0], np.float32))["y"]
    assert np.isfinite(found[[0, 3]]).all()
    infinite = _parsed(
        "g (float[4] x) => (float[4] y) { y = Add(x, up) }", up=np.array(np.inf, np.float32)
    )
    assert np.isinf(
        _compiled(infinite, precision="float16").run(x=np.zeros(4, np.float32))["y"]
    ).all()


def test_loops_and_branches_are_rewritten_inside() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["a", "half"], ["b"]),
            helper.make_node("Add", ["b", "one"], ["a_out"]),
            helper.make_node("Identity", ["cond"], ["cond_out"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", 7, []),
            helper.make_tensor_value_info("cond", 9, []),
            helper.make_tensor_value_info("a", 1, [3]),
        ],
        [
            helper.make_tensor_value_info("cond_out", 9, []),
            helper.make_tensor_value_info("a_out", 1, [3]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)],
        "loop",
        [helper.make_tensor_value_info("x", 1, [3]), helper.make_tensor_value_info("trips", 7, [])],
        [helper.make_tensor_value_info("y", 1, [3])],
        [
            numpy_helper.from_array(np.array(value, np.float32), name)
            for name, value in (("half", 0.5), ("one", 1.0))
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = np.array([1.0, 3.3, 100.7], np.float32)
    expected = x.astype(np.float16)
    for _ in range(3):
        expected = expected * np.float16(0.5) + np.float16(1)
    found = _compiled(model, precision="float16").run(x=x, trips=np.int64(3))["y"]
    np.testing.assert_array_equal(found, expected.astype(np.float32))


def test_ops_that_cannot_stay_in_float32_and_are_named() -> None:
    model = _parsed("g (float[3,3] x) => (float[] y) { n = Neg(x) d = Det(n) y = Neg(d) }")
    x = np.random.default_rng(1).random((3, 3)).astype(np.float32)
    program = _compiled(model, precision="float16")
    expected = -np.linalg.det(-(x.astype(np.float16).astype(np.float64)))
    np.testing.assert_allclose(program.run(x=x)["y"], expected, rtol=2e-3)


def test_variables_of_inference_are_float16() -> None:
    program = _compiled(networks.digits_mlp(), precision="float16", constant_weights=False)
    assert {value.dtype for value in program.state.read().values()} == {np.dtype(np.float16)}


def test_a_statistic_that_the_model_writes_stays_float32() -> None:
    nodes = [
        helper.make_node("Add", ["total", "x"], ["next"]),
        helper.make_node("CopyVarUpdate", ["total", "next"], ["y"], domain="ai.graphcore"),
    ]
    graph = helper.make_graph(
        nodes,
        "sum",
        [helper.make_tensor_value_info("x", 1, [2])],
        [helper.make_tensor_value_info("y", 1, [2])],
        [numpy_helper.from_array(np.zeros(2, np.float32), "total")],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.graphcore", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    program = _compiled(model, precision="float16", constant_weights=False)
    for count in (1, 2, 3):
        found = program.run(x=np.full(2, 0.5, np.float32))["y"]
        np.testing.assert_array_equal(found, np.full(2, count / 2, np.float32))


def test_half_partials_count() -> None:
    rng = np.random.default_rng(3)
    w = rng.random((64, 4)).astype(np.float32)
    model = _parsed("g (float[2,64] x) => (float[2,4] y) { y = MatMul(x, w) }", w=w)
    x = rng.random((2, 64)).astype(np.float32)
    one = _compiled(model, precision="float16").run(x=x)["y"]
    half = _compiled(model, precision="float16", partials_type_matmuls="half").run(x=x)["y"]
    total = np.zeros((2, 4), np.float16)
    for first in range(0, 64, 16):
        part = x[:, first : first + 16].astype(np.float16).astype(np.float32) @ w[
            first : first + 16
        ].astype(np.float16).astype(np.float32)
        total = (total.astype(np.float32) + part).astype(np.float16)
    np.testing.assert_array_equal(half, total.astype(np.float32))
    assert (one != half).any()


def _table(rows: Array) -> onnx.ModelProto:
    """The mean of the squares of three rows of a table."""
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["a"]),
        helper.make_node("Mul", ["a", "a"], ["b"]),
        helper.make_node("ReduceMean", ["b"], ["loss"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info("i", 7, [3])],
        [helper.make_tensor_value_info("loss", 1, [])],
        [numpy_helper.from_array(rows, "table")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize("precision", ["float16", "mixed"])
def test_a_table_off_chip_is_looked_up_by_rows(precision: str) -> None:
    """With float32 variables there is no other copy of the table; training is the same."""
    rows = np.random.default_rng(2).standard_normal((50, 4)).astype(np.float32)
    model = _table(rows)
    sgd = {"type": "sgd", "learning_rate": 0.5}
    train = {"loss": {"type": "identity", "input": "loss"}, "optimizer": sgd}
    found: list[Array] = []
    options: dict[str, Any] = {"precision": precision}
    for place in ("on_chip", "off_chip"):
        location = {"storage": place, "min_elements_for_off_chip": 1}
        options["tensor_location_override"] = {"table": location}
        archive = popc.compile(model, train=train, options=options)
        program = popc_runtime.load(archive.to_bytes())
        program.run(i=np.array([49, 7, 7]))
        found.append(program.state.read(VariableRole.WEIGHT)["table"])
    np.testing.assert_allclose(found[0], found[1], rtol=2e-3, atol=1e-6)
    assert (found[1] != rows.astype(found[1].dtype)).any(axis=1).sum() == 2
    graphs = planned_model(model, options, train=train).graph.walk()
    ops = [op for nested in graphs for op in nested.ops]
    types = {op.op_type for op in ops}
    assert "RemoteGather" in types
    assert ("RemoteScatterAdd" in types) == (precision == "mixed"), "steps of float32 alone"
    others = [op for op in ops if not op.op_type.startswith("Remote")]
    whole = [tensor for op in others for tensor in op.outputs if tensor.type.shape == (50, 4)]
    assert precision == "float16" or not whole
