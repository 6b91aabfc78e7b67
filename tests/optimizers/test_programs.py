"""Compiled programs update weights as the formulas say, over steps of several micro-batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from popc_runtime import VariableRole
from popc_runtime.format import Array
from tests.optimizers.cases import CASES, Formula, State
from tests.training.small import data, linear_model, trainable, training_program

_BATCH: Final = 2
_UPDATES: Final = 6


def _initial(model: onnx.ModelProto) -> dict[str, Array]:
    return {
        tensor.name: numpy_helper.to_array(tensor).astype(np.float64)
        for tensor in model.graph.initializer
    }


def _expected(formula: Formula, accumulate: int, clip: float = np.inf) -> dict[str, Array]:
    """The weights after `_UPDATES` updates of the linear model."""
    weights = _initial(linear_model())
    states: dict[str, State] = {name: {} for name in weights}
    samples = data(_BATCH * accumulate * _UPDATES)
    xs = samples["x"].reshape(_UPDATES, accumulate, _BATCH, -1)
    targets = samples["target"].reshape(_UPDATES, accumulate, _BATCH, -1)
    for step, (x, target) in enumerate(zip(xs, targets, strict=True), start=1):
        error = x @ weights["w"] + weights["b"] - target
        slope = 2 * error / error[0].size
        found = {"w": np.einsum("kbi,kbo->io", x, slope), "b": slope.sum((0, 1))}
        norm = sum(float((g * g).sum()) for g in found.values()) ** 0.5
        weights = {
            name: formula(value, found[name] * min(1.0, clip / norm), states[name], step)
            for name, value in weights.items()
        }
    return weights


def _trained(folder: Path, optimizer: dict[str, Any], accumulate: int) -> dict[str, Array]:
    """The variables after `_UPDATES` updates, two per step."""
    program = training_program(
        folder,
        {**trainable(), "optimizer": optimizer},
        batch=_BATCH,
        batches_per_step=2,
        accumulation_factor=accumulate,
    )
    samples = data(_BATCH * accumulate * _UPDATES)
    for part in range(_UPDATES // 2):
        feeds = {}
        for spec in program.inputs:
            size = len(samples["x"]) * 2 // _UPDATES
            feeds[spec.name] = samples[spec.name][part * size : (part + 1) * size].reshape(
                spec.shape
            )
        program.run(feeds)
    return {
        **program.state.read(VariableRole.WEIGHT),
        **program.state.read(VariableRole.OPTIMIZER_STATE),
    }


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_formula(case: str, accumulate: int, tmp_path: Path) -> None:
    settings, formula = CASES[case]
    found = _trained(tmp_path, {"learning_rate": _rate(settings), **settings}, accumulate)
    for name, expected in _expected(formula, accumulate).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)


def _rate(settings: dict[str, Any]) -> list[Any]:
    """The default learning rate, but changeable."""
    adaptive = settings["type"] in ("adagrad", "rmsprop", "centered_rmsprop", "adadelta")
    return [0.01 if adaptive else 0.1, False]


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("case", ["sgd1-velocity-scaling", "sgd2-velocity-scaling", "adam", "lamb"])
def test_scaled_and_clipped(case: str, accumulate: int, tmp_path: Path) -> None:
    """The loss scale adapts itself while the program runs, and does not show."""
    settings, formula = CASES[case]
    settings = {
        **settings,
        "loss_scaling": [16.0, False],
        "automatic_loss_scaling": {"update_period": 2},
        "clip_norm": [{"max_norm": 0.5}],
    }
    found = _trained(tmp_path, settings, accumulate)
    for name, expected in _expected(formula, accumulate, clip=0.5).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)
    assert found["lossScaleUpdateFactor"] == 8
    assert found["Counter___lossScaleUpdate"] == _UPDATES
