"""What the user says about recomputation: options, and attributes of nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest
from onnx import helper

import popc
from popc.compiler import Planned
from popc.request import make_options
from popc_runtime.errors import ModelError, OptionError
from tests.training.deep import compiled, deep_mlp, repetitions

_ALL: dict[str, Any] = {"auto_recomputation": "recompute_all"}
_ATTRIBUTE = "__recompute_output_in_backward_pass"


def _annotated(**numbers: int) -> onnx.ModelProto:
    """The deep perceptron; nodes, named by their results, have the attribute of PopART."""
    model = deep_mlp(4)
    for node in model.graph.node:
        if node.output[0] in numbers:
            node.attribute.append(helper.make_attribute(_ATTRIBUTE, numbers[node.output[0]]))
    return model


def _names(done: Planned) -> list[str]:
    return [op.output.name.removesuffix("_recomputed") for op in repetitions(done.graph)]


def test_nodes_ask_for_recomputation() -> None:
    assert _names(compiled(_annotated(tanh1=2, tanh2=2, tanh3=1))) == ["tanh1", "tanh2"]
    assert _names(compiled(deep_mlp(4), recompute="tanh[12]")) == ["tanh1", "tanh2"]
    done = compiled(_annotated(tanh1=2, tanh2=2), checkpoints=["tanh2"])
    assert _names(done) == ["tanh1"]


def test_an_identity_makes_a_checkpoint() -> None:
    """As PopART's builder does it."""
    model = deep_mlp(4)
    nodes = list(model.graph.node)
    for node in nodes:
        node.input[:] = ["kept" if name == "block1" else name for name in node.input]
    kept = helper.make_node("Identity", ["block1"], ["kept"])
    kept.attribute.append(helper.make_attribute(_ATTRIBUTE, 1))
    place = next(i for i, node in enumerate(nodes) if node.output[0] == "block1")
    del model.graph.node[:]
    model.graph.node.extend([*nodes[: place + 1], kept, *nodes[place + 1 :]])
    assert "block1" in _names(compiled(deep_mlp(4), **_ALL))
    names = _names(compiled(model, **_ALL))
    assert "block1" not in names
    assert {"block0", "block2"} <= {*names}


def test_wrong_attributes_are_reported() -> None:
    with pytest.raises(ModelError, match=f"{_ATTRIBUTE} is 7, but must be 1 to keep"):
        compiled(_annotated(tanh1=7))


def _problems(model: Callable[[], onnx.ModelProto] = deep_mlp, **options: Any) -> tuple[str, ...]:
    with pytest.raises(OptionError) as caught:
        compiled(model(), **options)
    return caught.value.details


def test_unknown_names_are_reported() -> None:
    first, second, third = _problems(recompute=["tahn1", "x"], checkpoints=["nothing*like"])
    assert first == "recompute: 'tahn1' does not exist; did you mean 'tanh1'?"
    assert second.startswith("recompute: 'x' is an input, a weight, or not needed")
    assert third == "checkpoints: 'nothing*like' does not exist"


def test_mixtures_are_refused() -> None:
    (problem,) = _problems(auto_recomputation="Standard", recompute=["tanh1"])
    assert problem.startswith("recompute names tensors and auto_recomputation is standard")
    (problem,) = _problems(lambda: _annotated(tanh1=2), auto_recomputation="NormOnly")
    assert "nodes of the model ask for recomputation themselves (Tanh(tanh1))" in problem
    (problem,) = _problems(checkpoints=["tanh1"])
    assert "but nothing is" in problem
    (problem,) = _problems(autoRecomputation="Pipeline")
    assert "enable_pipelining is false" in problem


@pytest.mark.parametrize("option", ["auto_recomputation", "recompute", "checkpoints"])
def test_without_training_it_is_refused(option: str) -> None:
    value = "standard" if option == "auto_recomputation" else ["block*"]
    with pytest.raises(OptionError, match=f"{option}: for training"):
        popc.compile(deep_mlp(2), options={option: value})


def test_popart_spellings() -> None:
    for spelling, name in {
        "NoRecompute": "none",
        "None": "none",
        "NormOnly": "norm_only",
        "RecomputeAll": "recompute_all",
    }.items():
        assert make_options({"autoRecomputation": spelling}).auto_recomputation == name
