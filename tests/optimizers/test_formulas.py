"""Updates of a small network are those of the formulas."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import Array
from tests.optimizers.cases import CASES, Formula, State
from tests.optimizers.network import gradients, initial_weights, train

_NORM: Final = 2e-6  # norms, and scalars that may change, are float32
_SOME: Final = 20  # updates, after which corrections for the first ones count little
_FEW: Final = 10  # updates where the formula itself is not at stake


def _expected(
    formula: Formula,
    *,
    steps: int = _FEW,
    micro_batches: int = 1,
    mean: bool = False,
    clip: float = float("inf"),
) -> dict[str, Array]:
    """The weights after some updates by ``formula``, from gradients of micro-batches."""
    found = initial_weights(np.float64)
    states: dict[str, State] = {name: {} for name in found}
    for step in range(steps):
        parts = [gradients(found, step, index) for index in range(micro_batches)]
        total = {
            name: np.sum([part[name] for part in parts], axis=0) / (micro_batches if mean else 1)
            for name in found
        }
        norm = sum(float((g * g).sum()) for g in total.values()) ** 0.5
        found = {
            name: formula(w, total[name] * min(1.0, clip / norm), states[name], step + 1)
            for name, w in found.items()
        }
    return found


def _assert_near(actual: dict[str, Array], expected: dict[str, Array], tolerance: float) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 1e-5)])
@pytest.mark.parametrize("case", CASES)
def test_formula(case: str, dtype: Any, tolerance: float) -> None:
    settings, formula = CASES[case]
    if settings["type"].startswith("lamb"):
        tolerance = max(tolerance, _NORM)
    trained = train(settings, steps=_SOME, dtype=dtype)
    _assert_near(trained.weights, _expected(formula, steps=_SOME), tolerance)


@pytest.mark.parametrize("case", CASES)
def test_changeable_hyper_parameters_start_with_their_values(case: str) -> None:
    """The variables hold the values in float32: that is how near the results are."""
    settings, formula = CASES[case]
    changeable = {
        key: [value, False] if isinstance(value, float) and np.isfinite(value) else value
        for key, value in {"learning_rate": None, **settings}.items()
        if value is not None
    }
    trained = train(changeable, steps=_FEW, dtype=np.float64)
    _assert_near(trained.weights, _expected(formula), _NORM)
    names = {parameter.name for parameter in trained.result.hyper_parameters if parameter.variable}
    assert names == {key for key, value in changeable.items() if isinstance(value, list)}


@pytest.mark.parametrize("reduction", ["sum", "post", "running"])
@pytest.mark.parametrize(
    "case",
    [
        "sgd1-velocity-scaling",
        "sgd2-velocity-scaling",
        "sgd0-dampening",
        "adam",
        "lamb",
        "rmsprop",
        "adadelta",
    ],
)
def test_micro_batches(case: str, reduction: str) -> None:
    settings, formula = CASES[case]
    trained = train(
        settings,
        steps=_FEW,
        dtype=np.float64,
        micro_batches=3,
        reduction="sum" if reduction == "sum" else "mean",
        mean_strategy="running" if reduction == "running" else "post",
    )
    expected = _expected(formula, micro_batches=3, mean=reduction != "sum")
    _assert_near(trained.weights, expected, _NORM if case == "lamb" else 1e-9)


@pytest.mark.parametrize("const", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_the_loss_scale_does_not_matter(case: str, *, const: bool) -> None:
    settings, formula = CASES[case]
    scaled = {**settings, "loss_scaling": {"value": 1024, "const": const}}
    trained = train(scaled, steps=_FEW, dtype=np.float64, gradient_scale=1024.0)
    _assert_near(trained.weights, _expected(formula), _NORM)


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_clipped_by_the_norm_of_all_gradients(case: str, micro_batches: int) -> None:
    settings, formula = CASES[case]
    clipped = {**settings, "clip_norm": [{"max_norm": 0.3}], "loss_scaling": 64}
    trained = train(
        clipped, steps=_FEW, dtype=np.float64, micro_batches=micro_batches, gradient_scale=64.0
    )
    expected = _expected(formula, clip=0.3, micro_batches=micro_batches)
    _assert_near(trained.weights, expected, _NORM)
    unclipped = _expected(formula, micro_batches=micro_batches)
    assert any(np.abs(expected[name] - unclipped[name]).max() > 1e-4 for name in expected)
