"""Annotations of nodes: attributes of the model, and the table of options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import popc
import popc_runtime
from popc.frontend import Annotations, Bindings, import_model, load_model
from popc.ir import Graph, Op, format_graph
from popc.options.annotations import parse_rules
from popc.progress import Stage
from popc.transforms import excludable_passes
from popc_runtime.errors import ModelError, OptionError
from tests.training.many_weights import many_weights

_PASSES = excludable_passes()


def _model(annotations: Mapping[str, Any] | None = None) -> onnx.ModelProto:
    """y = relu(neg(neg(x))): the two Negs cancel each other."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], name="first"),
        helper.make_node("Neg", ["a"], ["b"], name="second", **(annotations or {})),
        helper.make_node("Relu", ["b"], ["y"], name="last"),
    ]
    info = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph(nodes, "annotated", info[:1], info[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _imported(model: onnx.ModelProto, rules: Sequence[Mapping[str, Any]] = ()) -> Graph:
    annotations = Annotations(parse_rules(list(rules), _PASSES), _PASSES)
    return import_model(load_model(model), Bindings(annotations=annotations)).graph


def _op(graph: Graph, tensor: str) -> Op:
    op = graph.tensors[tensor].producer
    assert op is not None, tensor
    return op


def test_attributes_become_settings_and_are_shown() -> None:
    said = {"__schedule_priority": 2.5, "__exclude_patterns": ["simplify"], "__ipu_number": 3}
    graph = _imported(_model(said))
    settings = _op(graph, "b").settings
    assert settings.schedule_priority == 2.5
    assert settings.exclude_patterns == ("simplify",)
    assert settings.virtual_graph == 3
    assert _op(graph, "a").settings.schedule_priority == 0
    line = "# schedule_priority=2.5 exclude_patterns=simplify virtual_graph=3"
    assert [line in item for item in format_graph(graph).splitlines()].count(True) == 1


@pytest.mark.parametrize(
    "selector",
    [{"nodes": "sec*"}, {"op_type": "Neg", "output": "b"}, {"output": "b"}],
    ids=str,
)
def test_rules_say_the_same(selector: dict[str, str]) -> None:
    graph = _imported(_model(), [{**selector, "__schedule_priority": 1, "exclude_patterns": []}])
    assert [_op(graph, name).settings.schedule_priority for name in "aby"] == [0, 1, 0]


def test_later_rules_win_over_earlier_ones_and_the_model() -> None:
    rules = [{"nodes": "*", "schedule_priority": 1}, {"op_type": "Neg", "schedule_priority": 2}]
    graph = _imported(_model({"__schedule_priority": 9.0}), rules)
    assert [_op(graph, name).settings.schedule_priority for name in "aby"] == [2, 2, 1]


def _transformed(model: onnx.ModelProto, options: Mapping[str, Any]) -> str:
    texts: dict[Stage, str] = {}
    popc.compile(model, options={"verify_ir": True, **options}, on_artefact=texts.__setitem__)
    return texts[Stage.TRANSFORM]


@pytest.mark.parametrize("excluded", ["", "MatMul", "Relu"])
def test_ops_are_not_fused_with_excluded_ones(excluded: str, tmp_path: Path) -> None:
    """Whichever of the ops the pass begins with."""
    weight = np.eye(4, dtype=np.float32) + 1
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Relu", ["product"], ["y"]),
    ]
    info = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 4]) for name in "xy"]
    weights = [numpy_helper.from_array(weight, "w")]
    graph = helper.make_graph(nodes, "fused", info[:1], info[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    rule = {"op_type": excluded, "exclude_patterns": list(_PASSES)}
    options = {"annotate": [rule]} if excluded else {}
    assert (" = Relu(" in _transformed(model, options)) == bool(excluded)
    program = popc_runtime.load(popc.compile(model, options=options).save(tmp_path / "y.popx"))
    x = np.arange(-4, 4, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(program.run({"x": x})["y"], np.maximum(x @ weight, 0))


def test_equal_ops_are_not_merged_if_excluded() -> None:
    nodes = [helper.make_node("Sin", ["x"], [name], name=name) for name in "yz"]
    info = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xyz"]
    graph = helper.make_graph(nodes, "equal", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    rule = {"nodes": "z", "exclude_patterns": ["common_subexpressions"]}
    assert _transformed(model, {}).count("Sin(") == 1
    assert _transformed(model, {"annotate": [rule]}).count("Sin(") == 2


def test_priority_decides_about_the_order() -> None:
    def order(options: dict[str, Any]) -> str:
        texts: dict[Stage, str] = {}
        popc.compile(_branches(), options=options, on_artefact=texts.__setitem__)
        return texts[Stage.SCHEDULE]

    for first, second in (("Sin", "Cos"), ("Cos", "Sin")):
        text = order({"annotate": [{"op_type": first, "schedule_priority": 5}]})
        assert text.index(f"{first}(") < text.index(f"{second}(")


def _branches() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Sin", ["x"], ["y"], name="sin"),
        helper.make_node("Cos", ["x"], ["z"], name="cos"),
    ]
    info = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xyz"]
    graph = helper.make_graph(nodes, "branches", info[:1], info[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_the_backward_pass_inherits() -> None:
    texts: dict[Stage, str] = {}
    popc.compile(
        many_weights(),
        dims={"batch": 2},
        loss="loss",
        optimizer={"type": "sgd"},
        options={"annotate": [{"op_type": "Tanh", "schedule_priority": 3}], "verify_ir": True},
        on_artefact=texts.__setitem__,
    )
    lines = [line for line in texts[Stage.TRAIN].splitlines() if "schedule_priority=3" in line]
    assert any(" = Tanh(" in line for line in lines)
    assert any("Gradient___" in line.split(" = ")[0] for line in lines)


def test_recomputation_is_an_annotation_too() -> None:
    def computed(options: dict[str, Any]) -> int:
        texts: dict[Stage, str] = {}
        popc.compile(
            many_weights(),
            dims={"batch": 2},
            loss="loss",
            optimizer={"type": "sgd"},
            # A chain would hide what is computed once more.
            options={"verify_ir": True, "disabled_passes": ["fuse_elementwise"], **options},
            on_artefact=texts.__setitem__,
        )
        return texts[Stage.TRANSFORM].count(" = Tanh(")

    rule = {"output": "tanh1", "recompute": "recompute"}
    assert computed({"annotate": [rule]}) == computed({}) + 1


def test_what_has_no_effect_is_reported() -> None:
    said = {"__ipu_number": 1, "__execution_phase": 1, "__exclude_patterns": ["CoshOp"]}
    assert popc.compile(_model(said)).notes == (
        "__execution_phase has no effect (virtual_graph_mode is not execution_phases): second",
        "__ipu_number has no effect (virtual_graph_mode is off): second",
        "__exclude_patterns: CoshOp cannot be excluded (the kernel takes the op as it is): second",
    )


def test_patterns_that_do_not_exist_are_reported() -> None:
    (note,) = popc.compile(_model({"__exclude_patterns": ["simplfy", "join_casts"]})).notes
    assert note == (
        "__exclude_patterns: simplfy cannot be excluded (there is none of this name: did you mean "
        "simplify?): second"
    )


@pytest.mark.parametrize(
    ("said", "settings"),
    [
        ({"__available_memory": 0.25}, {"available_memory": 0.25}),
        ({"__exclude_patterns": ["InPlace"]}, {"inplace": ((0, 0.0),)}),
        ({"__exclude_patterns": ["SubtractArg1GradOp"]}, {"exclude_patterns": ()}),
    ],
)
def test_what_popart_says_of_a_node(said: dict[str, Any], settings: dict[str, Any]) -> None:
    graph = _imported(_model(said))
    (op,) = (op for op in graph.ops if op.settings.origin == "second")
    for name, value in settings.items():
        assert getattr(op.settings, name) == value


def test_memory_of_a_node_is_planned_with() -> None:
    def cycles(said: Mapping[str, Any], **options: Any) -> int:
        node = helper.make_node("MatMul", ["x", "x"], ["y"], name="product", **said)
        info = [helper.make_tensor_value_info(name, 1, [256, 256]) for name in "xy"]
        graph = helper.make_graph([node], "product", info[:1], info[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        return popc.estimate(model, options={"tiles_per_ipu": 16, **options}).cycles.total

    little = cycles({"__available_memory": 0.001})
    assert little > cycles({})
    assert little == cycles({}, available_memory_proportions={"product": 0.001})
    assert cycles({"__available_memory": 0.001}, available_memory_proportion=0.6) == little


def test_mistakes_in_the_model_are_listed() -> None:
    said = {"__schedule_prority": 1.0, "__tile_sets": 0}
    with pytest.raises(ModelError, match="annotations of nodes are wrong") as caught:
        _imported(_model(said))
    listed = "\n".join(caught.value.details)
    assert "did you mean '__schedule_priority'" in listed
    assert "__tile_sets is not an annotation" in listed


def test_mistakes_in_rules_are_listed() -> None:
    rules = [
        {"nodes": "secnd", "schedule_priority": 1},
        {"op_type": "Gelu", "schedule_priority": 1},
    ]
    with pytest.raises(OptionError, match="annotate names nodes") as caught:
        _imported(_model(), rules)
    first, second = caught.value.details
    assert "[0]" in first
    assert "did you mean 'second'" in first
    assert "[1]" in second


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"nodes": "a", "schedule_prioriti": 1}, "did you mean schedule_priority"),
        ({"nodes": "a", "schedule_priority": "high"}, "must be a number"),
        ({"nodes": "a"}, "has no annotation"),
        ({"schedule_priority": 1}, "has no selector"),
        ({"nodes": "a", "ipu_number": 1}, "would have no effect: virtual_graph_mode is off"),
        ({"nodes": "a", "exclude_patterns": ["simplfy"]}, "did you mean simplify"),
        ({"nodes": "a", "recompute": "no"}, "one of checkpoint, recompute"),
    ],
)
def test_rules_that_make_no_sense(rule: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError) as caught:
        popc.compile(_model(), options={"annotate": [rule]})
    assert problem in "\n".join(caught.value.details)


def test_a_file_of_options(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text('[[annotate]]\nnodes = "first"\nschedule_priority = 2\n')
    archive = popc.compile(_model(), options=file)
    rows = {row.name: row for row in archive.manifest.options}
    assert rows["annotate"].value == ('nodes = "first", schedule_priority = 2.0',)
