from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from popc.frontend import Bindings, ImportedModel, import_model, load_model
from popc_runtime.errors import DataDependentShapeError, ModelError, UnsupportedOpError
from popc_runtime.format import Array
from tests.support.oracles import import_graph, run_graph, run_model

_HEAD = '<ir_version: 8, opset_import: ["" : 17, "my" : 1]>'


def _parse(text: str) -> onnx.ModelProto:
    return parser.parse_model(_HEAD + text)


def _import(text: str, **bindings: Any) -> ImportedModel:
    return import_model(load_model(_parse(text)), Bindings(**bindings))


def _names(model: ImportedModel) -> list[str]:
    return [name for name, _ in model.outputs]


_X = np.array([-1, 2], np.float32)


# -- outputs ---------------------------------------------------------------------------------------


def test_an_output_may_be_an_input_or_a_weight() -> None:
    model = _import("g (float[2] x) => (float[2] x, float[2] w) <float[2] w = {3, 4}> {}")
    assert _names(model) == ["x", "w"]
    results = run_graph(model.graph, {"x": _X})
    assert [array.tolist() for array in results] == [[-1, 2], [3, 4]]


def test_one_tensor_may_be_several_outputs() -> None:
    text = "g (float[2] x) => (float[2] y, float[2] z, float[2] y) { y = Neg (x) z = Identity (y) }"
    model = _import(text)
    assert _names(model) == ["y", "z", "y.2"]
    assert all(array.tolist() == [1, -2] for array in run_graph(model.graph, {"x": _X}))


_CHAIN = "g (float[2] x) => (float[2] y) { h = Relu (x) y = Neg (h) }"


def test_wanted_outputs_and_anchors() -> None:
    assert _names(_import(_CHAIN)) == ["y"]
    assert _names(_import(_CHAIN, outputs=("h",))) == ["h"]
    assert _names(_import(_CHAIN, anchors=("h",))) == ["y", "h"]
    assert _names(_import(_CHAIN, anchors=("y",))) == ["y"]
    assert _names(_import(_CHAIN, outputs=("h", "x", "h"))) == ["h", "x"]


def test_what_no_output_needs_is_not_looked_at() -> None:
    text = """
        g (float[2] x) => (float[2] y, float[2] z) {
            y = Neg (x)
            z = my.Unknown (x)
        }
    """
    assert len(_import(text, outputs=("y",)).graph) == 1
    with pytest.raises(UnsupportedOpError, match="Unknown"):
        _import(text)


def test_sequences_come_out_as_their_elements() -> None:
    text = "g (float[2] x) => (seq(float[2]) y) { y = SequenceConstruct (x, x) }"
    model = _import(text)
    assert _names(model) == ["y.0", "y.1"]
    assert dict(model.sequences) == {"y": ("y.0", "y.1")}


def test_an_empty_sequence_is_listed() -> None:
    model = _import("g () => (seq(float[2]) y) { y = SequenceEmpty () }")
    assert (_names(model), dict(model.sequences)) == ([], {"y": ()})


def test_undefined_names_are_reported() -> None:
    with pytest.raises(ModelError, match="'nothing' is read but never defined"):
        _import("g (float[2] x) => (float[2] y) { y = Add (x, nothing) }")
    with pytest.raises(ModelError, match="'y' is read but never defined"):
        _import("g (float[2] x) => (float[2] y) { z = Neg (x) }")


# -- inputs ----------------------------------------------------------------------------------------


def test_unused_inputs_stay_inputs() -> None:
    model = _import("g (float[2] x, float[3] u) => (float[2] y) { y = Neg (x) }")
    assert [(name, str(type_)) for name, type_ in model.inputs] == [
        ("x", "float32[2]"),
        ("u", "float32[3]"),
    ]


def test_bound_inputs_disappear_and_fold() -> None:
    text = "g (float[2] x, int64[N] shape) => (float[N] y) { y = Expand (x, shape) }"
    with pytest.raises(DataDependentShapeError):
        _import(text, dims={"N": 2})
    model = _import(text, values={"shape": [2, 1]}, dims={})
    assert [name for name, _ in model.inputs] == ["x"]
    assert model.outputs[0][1].shape == (2, 2)


def test_sequence_inputs_are_bound() -> None:
    text = """
        g (seq(float[N]) s, float[2] x) => (float[2] y) {
            i = Constant <value = int64 {1}> ()
            e = SequenceAt (s, i)
            y = Add (x, e)
        }
    """
    model = _import(text, values={"s": [np.zeros(3), np.array([5.0, 6.0])]})
    (y,) = run_graph(model.graph, {"x": _X})
    assert y.tolist() == [4, 8]


def test_optional_inputs_are_bound() -> None:
    text = """
        g (optional(float[2]) o, float[2] x) => (float[2] y, optional(float[2]) p) {
            e = OptionalGetElement (o)
            y = Add (x, e)
            p = Identity (o)
        }
    """
    model = _import(text, values={"o": [5.0, 6.0]})
    assert _names(model) == ["y", "p"]
    assert run_graph(model.graph, {"x": _X})[0].tolist() == [4, 8]
    assert _names(_import(text, values={"o": None}, outputs=("p",))) == []


def test_a_bound_input_replaces_the_weight_that_it_names() -> None:
    text = """
        g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add (x, w) }
    """
    (plain,) = run_graph(_import(text).graph, {"x": _X})
    (bound,) = run_graph(_import(text, values={"w": [10, 20]}).graph, {"x": _X})
    assert (plain.tolist(), bound.tolist()) == ([0, 4], [9, 22])


# -- weights ---------------------------------------------------------------------------------------


def _with_weight(weight: TensorProto, inputs: str = "x, w") -> onnx.ModelProto:
    model = _parse(f"g (float[2] x) => (float[2] y) {{ y = Add ({inputs}) }}")
    model.graph.initializer.append(weight)
    return model


def test_weights_of_unsupported_types_are_listed_if_they_are_used() -> None:
    weight = helper.make_tensor("w", TensorProto.INT4, [2], [1, 2])
    with pytest.raises(UnsupportedOpError) as caught:
        import_graph(_with_weight(weight))
    assert caught.value.details == ("element type int4: w",)
    assert len(import_graph(_with_weight(weight, "x, x"))) == 1


def test_weights_in_constant_nodes_and_subgraphs() -> None:
    text = """
        g (bool c, float[2] x) => (float[2] y) {
            w = Constant <value_floats = [1.0, 2.0]> ()
            y = If (c) <
                then_branch = t () => (float[2] a) <float[2] v = {3, 4}> { a = Add (w, v) },
                else_branch = e () => (float[2] d) { d = Add (w, w) }
            >
        }
    """
    graph = _import(text, values={"c": True}).graph
    assert run_graph(graph, {"x": _X})[0].tolist() == [4, 6]


def test_sparse_constants() -> None:
    values = numpy_helper.from_array(np.array([5.0], np.float32), "v")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1]), "i"), [2])
    model = _parse("g (float[2] x) => (float[2] y) { y = Add (x, w) }")
    model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=sparse))
    (y,) = run_model(model, {"x": _X})
    assert y.tolist() == [-1, 7]


def test_names_in_messages_are_escaped() -> None:
    model = _parse("g (float[2] x) => (float[2] y) { y = Reshape (x, x) }")
    model.graph.node[0].name = "evil\x1b[2J"
    with pytest.raises(ModelError) as caught:
        import_graph(model)
    assert "evil\\x1b[2J" in str(caught.value)
    assert "\x1b" not in str(caught.value)


# -- functions -------------------------------------------------------------------------------------


def _run(text: str, x: Array = _X) -> list[float]:
    (y,) = run_model(_parse(text), {"x": x})
    result: list[float] = y.tolist()
    return result


def test_functions_resolve_attributes_of_the_call_and_defaults() -> None:
    body = """
        <domain: "my", opset_import: ["" : 17]>
        f <alpha: float = 0.5, beta> (a) => (b) {
            c = LeakyRelu <alpha: float = @alpha> (a)
            d = Constant <value_float: float = @beta> ()
            b = Add (c, d)
        }
    """
    call = "g (float[2] x) => (float[2] y) {{ y = my.f <{}> (x) }}"
    assert _run(call.format("beta = 1.0") + body) == [0.5, 3]
    assert _run(call.format("alpha = 2.0, beta = 1.0") + body) == [-1, 3]


def test_functions_resolve_attributes_in_subgraphs_and_inner_calls() -> None:
    assert _run("""
        g (float[2] x) => (float[2] y) { y = my.outer <slope = 3.0> (x) }
        <domain: "my", opset_import: ["" : 17, "my" : 1]>
        outer <slope> (a) => (b) {
            yes = Constant <value = bool {1}> ()
            b = If (yes) <
                then_branch = t () => (c) { c = my.inner <alpha: float = @slope> (a) },
                else_branch = e () => (d) { d = Neg (a) }
            >
        }
        <domain: "my", opset_import: ["" : 17]>
        inner <alpha> (a) => (b) { b = LeakyRelu <alpha: float = @alpha> (a) }
    """) == [-3, 2]


def test_functions_do_not_see_the_names_around_their_call() -> None:
    with pytest.raises(ModelError, match="'x' is read but never defined"):
        _run("""
            g (float[2] x) => (float[2] y) { y = my.f (x) }
            <domain: "my", opset_import: ["" : 17]> f (a) => (b) { b = Add (a, x) }
        """)


def test_too_many_inputs_for_a_function() -> None:
    with pytest.raises(ModelError, match="2 inputs are given, but it has 1"):
        _run("""
            g (float[2] x) => (float[2] y) { y = my.f (x, x) }
            <domain: "my", opset_import: ["" : 17]> f (a) => (b) { b = Neg (a) }
        """)


def test_functions_of_the_standard_domain_are_found() -> None:
    model = _parse("""
        g (float[2] x) => (float[2] y) { y = Twice (x) }
        <domain: "ai.onnx", opset_import: ["" : 17]> Twice (a) => (b) { b = Add (a, a) }
    """)
    (y,) = run_model(model, {"x": _X})
    assert y.tolist() == [-2, 4]


def test_attributes_without_a_type_are_understood() -> None:
    model = _parse("g (float[2] x) => (float[2] y) { y = LeakyRelu <alpha = 2.0> (x) }")
    model.graph.node[0].attribute[0].type = onnx.AttributeProto.UNDEFINED
    (y,) = run_model(model, {"x": _X})
    assert y.tolist() == [-2, 2]
