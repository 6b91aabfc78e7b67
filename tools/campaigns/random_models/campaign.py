"""One seed of the campaign, and findings in files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from popc_runtime.errors import OptionError
from popc_runtime.format import Array
from tools.campaigns.random_models.drawn_options import random_options
from tools.campaigns.random_models.evaluation import RefusedError
from tools.campaigns.random_models.generation import random_recipe
from tools.campaigns.random_models.recipe import Recipe, follow
from tools.campaigns.random_models.shrinking import Case, judge, shrink
from tools.campaigns.random_models.trial import Finding, expect, try_options

__all__ = ["Outcome", "check_seed", "reproduce", "write_finding"]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a seed.

    Attributes:
        seed: Which.
        verdict: "well", "without options" (so, but the drawn options do not go together), "empty"
            (onnxruntime refuses the model), or the kind of the finding.
        finding: What is wrong, if something is.
        model: The smallest model that goes wrong, serialised.
        feeds: Its inputs.
        options: The fewest options with which it does.
        operators: How many nodes of each kind the model had.
        summary: In a line.
    """

    seed: int
    verdict: str
    finding: Finding | None = None
    model: bytes = b""
    feeds: Mapping[str, Array] = field(default_factory=dict[str, Array])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    operators: Mapping[str, int] = field(default_factory=dict[str, int])
    summary: str = ""


def check_seed(seed: int, *, is_small: bool = False) -> Outcome:
    """Make the model of a seed, compile and run it with default and with drawn options.

    A small one is compiled once: every other seed with default options.
    """
    recipe, values = random_recipe(seed, is_small=is_small)
    operators = dict[str, int]()
    for node in recipe.nodes:
        operators[node.op_type] = operators.get(node.op_type, 0) + 1
    try:
        wanted = expect(recipe, values)
    except RefusedError as error:
        return Outcome(seed, "empty", summary=str(error))
    verdict = "well"
    both: list[Mapping[str, Any]] = [{}, random_options(seed, recipe)]
    for options in both[seed % 2 :: 2] if is_small else both:
        try:
            finding = try_options(wanted, options)
        except OptionError:
            verdict = "without options"
            continue
        if finding is not None:
            found = _smallest(seed, Case(recipe, options), finding)
            return replace(found, operators=operators)
    return Outcome(seed, verdict, operators=operators)


def _smallest(seed: int, case: Case, finding: Finding) -> Outcome:
    case = shrink(case, finding)
    last = judge(case) or finding
    nodes = " ".join(node.op_type for node in case.recipe.nodes)
    lines = last.what.strip().splitlines()
    line = lines[-1] if last.kind in {"fails", "refused"} else lines[0]
    summary = f"[{nodes}] {dict(case.options)} {last.engine}: {line}"
    model = expect(case.recipe, follow(case.recipe)).model.SerializeToString()
    return Outcome(seed, last.kind, last, model, case.recipe.inputs, case.options, {}, summary)


def write_finding(outcome: Outcome, out: Path) -> Path:
    """Write a finding to a folder of its own: model.onnx, inputs.npz, case.json, finding.txt."""
    assert outcome.finding is not None
    folder = out / f"{outcome.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(outcome.model)
    np.savez(folder / "inputs.npz", allow_pickle=False, **outcome.feeds)
    (folder / "options.json").write_text(json.dumps(dict(outcome.options)))
    (folder / "finding.txt").write_text(f"{outcome.summary}\n\n{outcome.finding.what}\n")
    return folder


def reproduce(folder: Path) -> Finding | None:
    """Run the case of a folder once more.

    Raises:
        RefusedError: onnxruntime does not run it.
    """
    model = onnx.load(folder / "model.onnx")
    with np.load(folder / "inputs.npz") as stored:
        inputs = dict(stored)
    constants = {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer
    }
    opset = next(imported.version for imported in model.opset_import if not imported.domain)
    outputs = tuple(output.name for output in model.graph.output)
    recipe = Recipe(opset, inputs, constants, tuple(model.graph.node), outputs)
    return judge(Case(recipe, json.loads((folder / "options.json").read_text())))
