"""A slice of the campaign of random models, and that it would find what is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from popc_runtime.format import Array
from tools.campaigns.random_models.builder import MOST_ELEMENTS
from tools.campaigns.random_models.campaign import check_seed, reproduce, write_finding
from tools.campaigns.random_models.evaluation import RefusedError
from tools.campaigns.random_models.generation import random_recipe
from tools.campaigns.random_models.recipe import Recipe, follow
from tools.campaigns.random_models.shrinking import Case, judge, shrink
from tools.campaigns.random_models.trial import Finding, difference, expect, try_options

_SLICE = range(80)


@pytest.mark.parametrize("first", _SLICE[::10])
def test_random_models(first: int) -> None:
    outcomes = [check_seed(seed) for seed in range(first, first + 10)]
    assert {outcome.seed: outcome.summary for outcome in outcomes if outcome.finding} == {}


def test_a_seed_is_a_model() -> None:
    models = [expect(*random_recipe(seed)).model for seed in (5, 5, 6)]
    assert models[0] == models[1] != models[2]


def test_inputs_are_no_larger_than_what_may_be_made_of_them() -> None:
    """Of that seed's input, as it was drawn, no layer's result was small enough."""
    recipe, values = random_recipe(7702452, is_small=True)
    assert recipe.outputs
    assert all(value.array.size <= MOST_ELEMENTS for value in values.values())


def _chain(*kinds: str, x: Array) -> Recipe:
    names = ["x", *(f"t{i}" for i in range(len(kinds)))]
    nodes = [helper.make_node(kind, [names[i]], [names[i + 1]]) for i, kind in enumerate(kinds)]
    return Recipe(21, {"x": x}, nodes=tuple(nodes), outputs=(names[-1],))


@pytest.mark.parametrize("kind", ["Tanh", "Softmax", "ReduceMean", "Gelu", "GlobalAveragePool"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_what_is_wrong_is_found(kind: str, dtype: type[np.generic]) -> None:
    """In the last bits of a result, and if two elements change places."""
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(dtype)
    values = follow(_chain("Sigmoid", kind, x=x))
    wanted = values["t1"]
    assert not difference(wanted.array, wanted)
    assert difference(wanted.array * dtype(1.01), wanted)
    if wanted.array.size > 1:
        assert difference(wanted.array.ravel()[::-1].reshape(wanted.shape), wanted)


def test_bytes_may_be_one_step_off_at_ties_only() -> None:
    x = np.array([0.5, 0.7, 1.5, 2.5, 3.0], np.float32)
    node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"])
    constants: dict[str, Array] = {"scale": np.array(1, np.float32)}
    constants["zero"] = np.array(0, np.uint8)
    recipe = Recipe(21, {"x": x}, constants, (node,), ("y",))
    assert follow(recipe)["y"].error.tolist() == [1, 0, 1, 1, 0]


def test_what_cannot_be_compared_is_left_out() -> None:
    nodes = (
        helper.make_node("Tanh", ["x"], ["t"]),
        helper.make_node("ArgMax", ["t"], ["y"], axis=0),
    )
    recipe = Recipe(21, {"x": np.array([1, 1 + 2**-23], np.float32)}, {}, nodes, ("y",))
    with pytest.raises(RefusedError, match="may be anything"):
        follow(recipe)


def test_cases_shrink() -> None:
    """To the node, and the option, without which all is well."""
    case = Case(
        _chain("Relu", "Tanh", "Floor", "Neg", "Abs", x=np.ones((2, 2), np.float32)),
        {"winograd": False, "enable_inplace": False},
    )

    def ask(other: Case) -> Finding | None:
        kinds = [node.op_type for node in other.recipe.nodes]
        is_wrong = "Floor" in kinds and "enable_inplace" in other.options
        return Finding("differs", "numpy", "y") if is_wrong else None

    found = ask(case)
    assert found is not None
    small = shrink(case, found, ask)
    assert [node.op_type for node in small.recipe.nodes] == ["Floor"]
    assert small.options == {"enable_inplace": False}
    assert set(small.recipe.inputs) == {"t1"}


def test_findings_can_be_run_again(tmp_path: Path) -> None:
    recipe = _chain("Relu", x=np.ones((2, 2), np.float32))
    wanted = expect(recipe, follow(recipe))
    assert try_options(wanted, {}) is None
    outcome = replace(
        check_seed(0),
        finding=Finding("differs", "numpy", "so it was"),
        model=wanted.model.SerializeToString(),
        feeds=recipe.inputs,
        options={"enable_inplace": False},
    )
    folder = write_finding(outcome, tmp_path)
    assert onnx.load(folder / "model.onnx") == wanted.model
    assert reproduce(folder) is None  # it is no longer wrong
    assert judge(Case(recipe, {})) is None
