"""Which ops get which attributes for rounding, partial sums and checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from popc.ir import Graph, Op, StepPart, verify
from popc.ops import OPS
from popc.options import FloatingPointException, Options, Partials
from popc.transforms import transform
from popc.transforms.round_results import RoundResults, rounds
from popc_runtime.kernels import KERNELS, MoveKernel
from tests.support.oracles import import_graph, run_ir

_HEADER = '<ir_version: 10, opset_import: ["" : 20]>\n'


def _graph(body: str) -> Graph:
    return import_graph(parser.parse_model(_HEADER + body))


def _marked(graph: Graph, attribute: str) -> dict[str, Any]:
    """The attribute by the type of op, for all that have it, in nested graphs too."""
    ops = [op for nested in graph.walk() for op in nested.ops]
    return {op.op_type: op.attributes[attribute] for op in ops if attribute in op.attributes}


def test_what_rounds() -> None:
    graph = _graph("""m (float16[2,3] x, float[2,3] z) => (float16[2,3] y, float[2,3] v) {
        a = Transpose(x)  b = Exp(a)  c = Neg(b)  d = Transpose(c)
        e = Cast <to = 10> (z)  y = Add(d, e)  v = Mul(z, z)
    }""")
    assert RoundResults().run(graph) == 0
    assert RoundResults(stochastic=True).run(graph) == 3
    assert _marked(graph, "rounding") == dict.fromkeys(("Exp", "Cast", "Add"), "stochastic")
    assert _marked(graph, "overflow") == {}
    assert RoundResults(nan_on_overflow=True).run(graph) == 3
    assert _marked(graph, "overflow") == dict.fromkeys(("Exp", "Cast", "Add"), "nan")
    assert verify(graph) == []


def test_what_is_computed_at_load_time_is_rounded_to_nearest() -> None:
    graph = _graph("""m (float16[3] x) => (float16[3] y) <float16[3] w = {1, 2, 3}> {
        e = Exp(w)  y = Mul(x, e)
    }""")
    assert RoundResults(stochastic=True).run(graph) == 1
    assert list(_marked(graph, "rounding")) == ["Mul"]


def test_loops() -> None:
    graph = _graph("""m (float16[2] x, int64 n) => (float16[2] y) {
        y = Loop(n, , x) <body = step (int64 i, bool c, float16[2] s) => (bool d, float16[2] t) {
            d = Identity(c)  t = Mul(s, s)
        }>
    }""")
    assert RoundResults(stochastic=True).run(graph) == 1
    assert _marked(graph, "rounding") == {"Mul": "stochastic"}


def test_gradients_of_an_adaptive_loss_scale() -> None:
    """They must not become infinite; other results may."""
    graph = _graph("m (float16[2] x) => (float16[2] y) { a = Exp(x)  y = Log(a) }")
    log = next(op for op in graph.ops if op.op_type == "Log")
    log.settings = type(log.settings)(part=StepPart.BACKWARD)
    assert RoundResults().run(graph) == 0
    factor = graph.add_constant("factor", log.output.type.with_shape(()), np.ones((), np.float16))
    graph.add_op("LossScaleUpdate", [factor], [factor.type])
    assert RoundResults().run(graph) == 1
    assert _marked(graph, "overflow") == {"Log": "largest"}


def _exact_types() -> list[str]:
    """Op types that are taken to round nothing, though they are no mere moves."""
    found = []
    for op_type in sorted(OPS.keys() & KERNELS.keys()):
        graph = _graph("m (float16[2] x) => (float16[2] y) { y = Exp(x) }")
        (op,) = graph.ops
        op.op_type = op_type
        if not rounds(op) and not isinstance(KERNELS[op_type], MoveKernel):
            found.append(op_type)
    return found


_UNARY = ("Abs", "Ceil", "Clip", "Floor", "Neg", "Relu", "Round", "Sign", "ThresholdedRelu")


@pytest.mark.parametrize("op_type", _UNARY)
def test_exact_ops_are_exact(op_type: str) -> None:
    """The results in float32 are numbers of float16."""
    assert op_type in _exact_types()
    x = (30 * np.random.default_rng(0).standard_normal(1000)).astype(np.float16)
    attributes = {"Clip": {"min": -1.0, "max": 2.5}, "ThresholdedRelu": {"alpha": 1.0}}
    (y,) = run_ir(op_type, [x.astype(np.float32)], attributes.get(op_type, {}))
    assert np.array_equal(y, y.astype(np.float16))


# -- by options ------------------------------------------------------------------------------------


_NAN = (FloatingPointException.NAN_ON_OVERFLOW,)


def _transformed(body: str, **options: Any) -> Graph:
    graph = _graph(body)
    transform(graph, Options(verify_ir=True, **options))
    return graph


_PRODUCTS = """m (float16[2,3] a, float16[3,4] b, float[2,2] c) => (float16[2,4] y, float[2,2] z) {
    p = MatMul(a, b)  y = Relu(p)  z = MatMul(c, c)
}"""


def test_partial_sums_of_the_option() -> None:
    """Only float16 products, and what is fused with them does not matter."""
    graph = _transformed(_PRODUCTS, partials_type_matmuls=Partials.HALF)
    types = {op.output.type.dtype.value: op.attributes for op in _of_type(graph, "MatMul")}
    assert types["float16"]["partials"] == "half"
    assert types["float16"]["activation"] == "Relu"
    assert "partials" not in types["float32"]
    assert not _marked(_transformed(_PRODUCTS), "partials")


def _of_type(graph: Graph, op_type: str) -> list[Op]:
    return [op for op in graph.ops if op.op_type == op_type]


def test_a_node_has_precedence() -> None:
    body = _PRODUCTS.replace("MatMul(a", 'MatMul <__partials_type = "FLOAT"> (a')
    graph = _transformed(body, partials_type_matmuls=Partials.HALF)
    assert _marked(graph, "partials") == {"MatMul": "float"}


def test_several_convolutions_have_their_own_types() -> None:
    body = """m (float16[1,2,5,5] x, float16[3,2,3,3] w) => (float16[1,3,3,3] y,
            float16[1,3,3,3] z) {
        y, z = ai.graphcore.MultiConv <numConvs = 2, partialsTypes = ["half", "float"]>
            (x, w, , x, w)
    }"""
    header = '<ir_version: 10, opset_import: ["" : 20, "ai.graphcore" : 1]>\n'
    graph = import_graph(_parsed(header + body))
    assert [op.attributes["partials"] for op in _of_type(graph, "Conv")] == ["half", "float"]


def _parsed(text: str) -> onnx.ModelProto:
    return parser.parse_model(text)


@pytest.mark.parametrize(
    ("options", "attributes"),
    [
        ({}, {}),
        ({"enable_floating_point_checks": True}, {"results": ("y",)}),
        (
            {
                "enable_floating_point_checks": True,
                "floating_point_exceptions": _NAN,
                "enable_stochastic_rounding": True,
            },
            {"results": ("y",), "overflow": "nan", "rounding": "stochastic"},
        ),
        ({"floating_point_exceptions": _NAN}, {}),
    ],
)
def test_attributes_for_checks(options: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    graph = _transformed("m (float16[2] x) => (float16[2] y) { y = Exp(x) }", **options)
    (op,) = _of_type(graph, "Exp")
    assert op.attributes == attributes
