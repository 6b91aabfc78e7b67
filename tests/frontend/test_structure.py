from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, parser

from popc.frontend import load_model, structure
from popc.frontend.structure import sort_nodes
from popc.frontend.walk import all_nodes, direct_reads
from popc_runtime.errors import ModelError
from tests.support.oracles import run_model

_HEAD = '<ir_version: 8, opset_import: ["" : 17, "my" : 1]>'


def _load(text: str) -> onnx.ModelProto:
    return load_model(parser.parse_model(_HEAD + text)).proto


def _refused(text: str) -> str:
    with pytest.raises(ModelError) as caught:
        _load(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("g (float[2] x) => (float[2] y) { y = Relu (x) y = Neg (x) }", "'y'"),
        ("g (float[2] x) => (float[2] y) { x = Relu (x) y = Neg (x) }", "'x'"),
        ("g (float[2] x, float[2] x) => (float[2] y) { y = Neg (x) }", "'x'"),
        (
            "g (float[2] x) => (float[2] y) <float w = {1}, float w = {3}> { y = Add (x, w) }",
            "'w'",
        ),
    ],
)
def test_names_are_defined_once(text: str, names: str) -> None:
    assert f"graph 'g' defines names more than once: {names}" in _refused(text)


def test_names_in_a_subgraph_are_defined_once() -> None:
    message = _refused("""
        g (bool c, float[2] x) => (float[2] y) {
            y = If (c) <
                then_branch = t () => (float[2] a) { b = Relu (x) b = Neg (x) a = Exp (x) },
                else_branch = e () => (float[2] d) { d = Relu (x) }
            >
        }
    """)
    assert "graph 't'" in message


def test_control_characters_are_escaped() -> None:
    model = parser.parse_model(_HEAD + "g (float[2] x) => (float[2] y) { y = Relu (x) }")
    model.graph.node[0].output[0] = "\x1b[31mx\n"
    model.graph.node.add().CopyFrom(model.graph.node[0])
    with pytest.raises(ModelError) as caught:
        load_model(model)
    assert "\\x1b[31mx\\n" in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_model_needs_outputs() -> None:
    assert "has no outputs" in _refused("g (float[2] x) => () { y = Relu (x) }")


# -- order -----------------------------------------------------------------------------------------


def test_nodes_are_sorted() -> None:
    text = _HEAD + "g (float[2] x) => (float[2] y) { y = Neg (b) b = Exp (a) a = Relu (x) }"
    model = parser.parse_model(text)
    proto = load_model(model).proto
    assert [node.op_type for node in proto.graph.node] == ["Relu", "Exp", "Neg"]
    assert [node.op_type for node in model.graph.node] == ["Neg", "Exp", "Relu"]
    (y,) = run_model(model, {"x": np.array([-1, 1], np.float32)})
    np.testing.assert_allclose(y, [-1, -np.e], rtol=1e-6)


def test_captures_of_subgraphs_count_and_subgraphs_are_sorted() -> None:
    proto = _load("""
        g (bool c, float[2] x) => (float[2] y) {
            y = If (c) <
                then_branch = t () => (float[2] a) { a = Neg (b) b = Exp (later) },
                else_branch = e () => (float[2] d) { d = Relu (x) }
            >
            later = Relu (x)
        }
    """)
    assert [node.op_type for node in proto.graph.node] == ["Relu", "If"]
    branches = {attribute.name: attribute.g for attribute in proto.graph.node[1].attribute}
    assert [node.op_type for node in branches["then_branch"].node] == ["Exp", "Neg"]


def test_functions_are_sorted() -> None:
    proto = _load("""
        g (float[2] x) => (float[2] y) { y = my.f (x) }
        <domain: "my", opset_import: ["" : 17]> f (a) => (b) { b = Relu (c) c = Neg (a) }
    """)
    assert [node.op_type for node in proto.functions[0].node] == ["Neg", "Relu"]


@given(st.permutations(range(8)))
@settings(max_examples=30, deadline=None)
def test_any_order_is_accepted(order: list[int]) -> None:
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in order]
    outputs = [onnx.ValueInfoProto(name="t8")]
    inputs = [helper.make_tensor_value_info("t0", 1, [1])]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), ir_version=8)
    model.opset_import[0].version = 17
    names = [node.input[0] for node in load_model(model).proto.graph.node]
    assert names == [f"t{i}" for i in range(8)]


def test_a_cycle_is_named() -> None:
    message = _refused("""
        g (float[2] x) => (float[2] y) {
            [first] a = Relu (x)
            [second] b = Add (a, d)
            [third] c = Neg (b)
            [fourth] d = Exp (c)
            [fifth] y = Neg (d)
        }
    """)
    assert message == "nodes depend on each other: second -> third -> fourth -> second"


def test_a_node_that_reads_itself_is_a_cycle() -> None:
    message = _refused("g (float[2] x) => (float[2] y) { [own] y = Add (x, y) }")
    assert message == "nodes depend on each other: own -> own"


# -- nesting and functions -------------------------------------------------------------------------


def _nested(depth: int) -> onnx.ModelProto:
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g0", [], [])
    for level in range(depth):
        graph.output.append(onnx.ValueInfoProto(name="y"))
        branches = {"then_branch": graph, "else_branch": graph}
        graph = helper.make_graph([helper.make_node("If", ["c"], ["y"], **branches)], "g", [], [])
        if level > 3:  # keep the message small: one branch is enough
            del graph.node[0].attribute[1]
    graph.output.append(onnx.ValueInfoProto(name="y"))
    graph.input.append(helper.make_tensor_value_info("x", 1, [2]))
    graph.input.append(helper.make_tensor_value_info("c", 9, []))
    model = helper.make_model(graph, ir_version=8)
    model.opset_import[0].version = 17
    return model


def test_sorted_models_are_read_once_however_deep_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[onnx.NodeProto] = []

    def counted(node: onnx.NodeProto) -> list[str]:
        read.append(node)
        return list(direct_reads(node))

    monkeypatch.setattr(structure, "direct_reads", counted)
    monkeypatch.setattr(structure, "reads", None)  # what looks into subgraphs again and again
    model = _nested(20)
    assert sort_nodes(model, owned=False) is model
    assert len(read) == len(list(all_nodes(model.graph.node)))


def test_deep_nesting_is_refused_in_words() -> None:
    assert load_model(_nested(5)).proto.graph.node
    with pytest.raises(ModelError, match="nested more than 30 deep"):
        load_model(_nested(33))


def _chain(length: int, last_calls: str) -> str:
    functions = [
        f'<domain: "my", opset_import: ["" : 17, "my" : 1]> '
        f"f{i} (a) => (b) {{ b = my.f{i + 1} (a) }}"
        for i in range(length)
    ]
    last = (
        f'<domain: "my", opset_import: ["" : 17, "my" : 1]> '
        f"f{length} (a) => (b) {{ b = {last_calls} (a) }}"
    )
    return "g (float[2] x) => (float[2] y) { y = my.f0 (x) }" + "".join([*functions, last])


def test_functions_may_call_functions() -> None:
    model = parser.parse_model(_HEAD + _chain(40, "Relu"))
    (y,) = run_model(model, {"x": np.array([-1, 1], np.float32)})
    assert y.tolist() == [0, 1]


def test_recursive_functions_are_refused_in_words() -> None:
    assert _refused(_chain(2, "my.f1")) == "functions call themselves: f1 -> f2 -> f1"
    assert _refused(_chain(0, "my.f0")) == "functions call themselves: f0 -> f0"


def test_long_chains_of_functions_are_refused_in_words() -> None:
    assert "more than 60 deep" in _refused(_chain(80, "Relu"))
    assert "more than 60 deep" in _refused(_chain(2000, "Relu"))


def test_functions_are_defined_once() -> None:
    body = '<domain: "my", opset_import: ["" : 17]> f (a) => (b) { b = Relu (a) }'
    message = _refused("g (float[2] x) => (float[2] y) { y = my.f (x) }" + body + body)
    assert message == "function 'f' is defined twice"
