from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper, parser
from onnxruntime.capi import onnxruntime_pybind11_state

from popc.frontend import describe_model, find_unsupported, load_model, unsupported
from popc.frontend.rules import RULES


def _load(text: str, opset: int = 17) -> onnx.ModelProto:
    head = f'<ir_version: 8, opset_import: ["" : {opset}, "my" : 1, "com.other" : 2]>'
    return parser.parse_model(head + text)


def _rows(model: onnx.ModelProto) -> list[tuple[str, str, int, str, tuple[str, ...]]]:
    return [
        (row.op_type, row.domain, row.opset, row.reason, row.nodes)
        for row in find_unsupported(load_model(model))
    ]


def test_nothing_is_wrong_with_a_plain_model() -> None:
    assert _rows(_load("g (float[N] x) => (float[N] y) { y = Relu (x) }")) == []


def test_operators_that_onnx_defines_by_others_are_known() -> None:
    text = "g (float[4, 4] x, int64[2] s) => (float[2, 2] y) { y = CenterCropPad (x, s) }"
    assert _rows(_load(text, 18)) == []


def test_a_definition_may_lack_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    without = {("", "AffineGrid"), ("", "MatMul")}
    rules = {key: rule for key, rule in RULES.items() if key not in without}
    monkeypatch.setattr(unsupported, "RULES", rules)
    unsupported._why_unknown.cache_clear()
    text = "g (float[N, 2, 3] t, int64[4] s) => (float[N, H, W, 2] y) { y = AffineGrid (t, s) }"
    ((op_type, *_, reason, _),) = _rows(_load(text, 20))
    unsupported._why_unknown.cache_clear()
    assert (op_type, reason) == (
        "AffineGrid",
        "it is defined by MatMul, which popc has no rule for",
    )


@pytest.mark.parametrize(
    ("call", "opset", "reason"),
    [
        ("Relo (x)", 17, "there is no such operator; did you mean 'Relu'?"),
        ("StringSplit (x)", 17, "the operator exists from opset 20 on"),
        ("StringNormalizer (x)", 17, "popc has no rule for it"),
        ("com.other.Gadget (x)", 17, "popc does not support this domain"),
    ],
)
def test_reasons(call: str, opset: int, reason: str) -> None:
    model = _load(f"g (float[N] x) => (float[N] y) {{ [here] y = {call} }}", opset)
    ((_, _, _, given, nodes),) = _rows(model)
    assert (given, nodes) == (reason, ("here",))


def test_nodes_are_grouped_over_graphs_and_functions() -> None:
    model = _load("""
        g (bool c, float[N] x) => (float[N] y) {
            [one] a = com.other.Gadget (x)
            b = If (c) <
                then_branch = t () => (d) { [two] d = com.other.Gadget (a) },
                else_branch = e () => (f) { f = my.f (a) }
            >
            y = com.other.Widget (b)
        }
        <domain: "my", opset_import: ["com.other" : 3]> f (a) => (b) {
            [three] b = com.other.Gadget (a)
        }
    """)
    assert [(op, domain, opset, nodes) for op, domain, opset, _, nodes in _rows(model)] == [
        ("Gadget", "com.other", 2, ("one", "two")),
        ("Gadget", "com.other", 3, ("three",)),
        ("Widget", "com.other", 2, ("Widget(y)",)),
    ]


def test_element_types() -> None:
    model = _load("""
        g (string[N] s, float[N] x) => (float[N] y) {
            [reads] a = Cast <to = 1> (s)
            [makes] b = Cast <to = 24> (x)
            [holds] c = Constant <value = string {"a"}> ()
            [weight] y = Mul (x, w)
        }
    """)
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.INT4, [1], [1]))
    assert sorted((nodes, reason) for *_, reason, nodes in _rows(model)) == [
        (("makes",), "element type float8e8m0 is not supported"),
        (("reads",), "element type string is not supported"),
        (("weight",), "element type int4 is not supported"),
    ]


def test_description() -> None:
    model = _load("""
        g (float[N, 3] x, seq(int64[?]) s, float[2] w) => (float[N, 3] y)
        <float[2] w = {1, 2}> {
            c = Constant <value = float[3] {1, 2, 3}> ()
            [last] y = Add (x, c)
        }
    """)
    model.producer_name = "me"
    assert describe_model(load_model(model)) == {
        "producer": "me",
        "ir_version": 8,
        "opsets": [["", 17], ["com.other", 2], ["my", 1]],
        "inputs": ["x: float32[N,3]", "s: sequence(int64[?])"],
        "outputs": ["y: float32[N,3]"],
        "weight_count": 2,
        "weight_bytes": 20,
        "weights": ["w: float32[2]"],
        "op_counts": {"Add": 1, "Constant": 1},
        "nodes": ["c = Constant()", "y = Add(x, c)  # last"],
    }


def test_weights_of_any_type_have_a_size() -> None:
    model = _load("g (float[N] x) => (float[N] y) { y = Relu (x) }")
    model.graph.initializer.extend(
        [
            TensorProto(name="four", dims=[3], data_type=TensorProto.INT4),
            TensorProto(name="text", dims=[3], data_type=TensorProto.STRING),
            TensorProto(name="wide", dims=[3], data_type=TensorProto.COMPLEX128),
        ]
    )
    assert describe_model(load_model(model))["weight_bytes"] == 2 + 0 + 48


def test_what_onnxruntime_computes_on_cpus_is_known_or_refused_for_a_reason() -> None:
    domain = "com.microsoft"
    kernels = {
        kernel.op_name
        for kernel in onnxruntime_pybind11_state.get_all_opkernel_def()
        if kernel.provider == "CPUExecutionProvider" and kernel.domain == domain
    }
    known = {op_type for place, op_type in RULES if place == domain}
    assert kernels - known == set(unsupported.REFUSED)
    assert len(kernels) == 82  # as README says, and how many popc knows in all
    assert (len(known), len(unsupported.REFUSED)) == (78, 11)


def test_an_operator_of_onnxruntime_is_refused_for_a_reason() -> None:
    head = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    model = parser.parse_model(
        head + "g (float[N] x) => (float[N] y) { y = com.microsoft.Sampling (x) }"
    )
    (found,) = find_unsupported(load_model(model))
    assert "it draws tokens at random" in found.problem
