"""Fifty updates of a small network are those of PyTorch, where PyTorch has the same formula."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import Array
from tests.optimizers.network import STEPS, gradients, initial_weights, train
from tests.support.recorded import Pytorch

# popc's settings; PyTorch's class and arguments
_CASES: Final[dict[str, tuple[dict[str, Any], str, dict[str, Any]]]] = {
    "sgd": ({"type": "sgd", "learning_rate": 0.1}, "SGD", {"lr": 0.1}),
    "sgd-decay": (
        {"type": "sgd", "learning_rate": 0.1, "weight_decay": 0.05},
        "SGD",
        {"lr": 0.1, "weight_decay": 0.05},
    ),
    "sgd-momentum": (
        {"type": "sgd", "learning_rate": 0.05, "momentum": 0.9},
        "SGD",
        {"lr": 0.05, "momentum": 0.9},
    ),
    "sgd-dampening": (
        {
            "type": "sgd",
            "learning_rate": 0.05,
            "momentum": 0.9,
            "dampening": 0.3,
            "weight_decay": 0.02,
        },
        "SGD",
        {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.02},
    ),
    "sgd-nesterov": (
        {
            "type": "sgd",
            "learning_rate": 0.05,
            "momentum": 0.8,
            "nesterov": True,
            "weight_decay": 0.02,
        },
        "SGD",
        {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.02},
    ),
    "adam": ({"type": "adam", "learning_rate": 0.01}, "Adam", {"lr": 0.01, "eps": 1e-6}),
    "adam-l2": (
        {
            "type": "adam",
            "learning_rate": 0.01,
            "beta1": 0.8,
            "beta2": 0.95,
            "eps": 1e-4,
            "weight_decay": 0.1,
            "weight_decay_mode": "l2_regularization",
        },
        "Adam",
        {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1},
    ),
    "adamw": (
        {"type": "adamw", "learning_rate": 0.01, "weight_decay": 0.1},
        "AdamW",
        {"lr": 0.01, "eps": 1e-6, "weight_decay": 0.1},
    ),
    # PyTorch adds eps elsewhere: no difference where gradients are much larger.
    "adamax": (
        {"type": "adamax", "learning_rate": 0.01, "eps": 1e-12},
        "Adamax",
        {"lr": 0.01, "eps": 1e-12},
    ),
    "rmsprop": (
        {"type": "rmsprop", "learning_rate": 0.005},
        "RMSprop",
        {"lr": 0.005, "eps": 1e-6},
    ),
    "rmsprop-momentum": (
        {
            "type": "rmsprop",
            "learning_rate": 0.005,
            "alpha": 0.9,
            "momentum": 0.6,
            "weight_decay": 0.1,
            "weight_decay_mode": "l2_regularization",
        },
        "RMSprop",
        {"lr": 0.005, "eps": 1e-6, "alpha": 0.9, "momentum": 0.6, "weight_decay": 0.1},
    ),
    "rmsprop-centered": (
        {"type": "centered_rmsprop", "learning_rate": 0.005, "momentum": 0.5},
        "RMSprop",
        {"lr": 0.005, "eps": 1e-6, "centered": True, "momentum": 0.5},
    ),
    "adagrad": (
        {
            "type": "adagrad",
            "learning_rate": 0.05,
            "weight_decay": 0.1,
            "weight_decay_mode": "l2_regularization",
        },
        "Adagrad",
        {"lr": 0.05, "eps": 1e-6, "weight_decay": 0.1},
    ),
    "adadelta": (
        {"type": "adadelta", "learning_rate": 1.0, "alpha": 0.9},
        "Adadelta",
        {"lr": 1.0, "eps": 1e-6},
    ),
}
# SGD in both of its ways
_RUNS: Final = [
    (name, {**settings, "accumulator_and_momentum": kind} if kind else settings)
    for name, (settings, _, _) in _CASES.items()
    for kind in (("combined", "separate") if settings["type"] == "sgd" else ("",))
]


def _torch(name: str, arguments: dict[str, Any], dtype: Any) -> dict[str, Array]:
    """The weights after `STEPS` updates by PyTorch."""
    import torch

    parameters = {
        weight: torch.nn.Parameter(torch.from_numpy(value.copy()))
        for weight, value in initial_weights(dtype).items()
    }
    optimizer = getattr(torch.optim, name)(parameters.values(), **arguments)
    if arguments.get("momentum") and name == "SGD":
        for parameter in parameters.values():  # PyTorch would not damp the first gradient
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    for step in range(STEPS):
        current = {weight: item.detach().numpy() for weight, item in parameters.items()}
        for weight, grad in gradients(current, step).items():
            parameters[weight].grad = torch.from_numpy(grad)
        optimizer.step()
    return {weight: item.detach().numpy() for weight, item in parameters.items()}


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return str(value.get("accumulator_and_momentum", value["type"]))
    return str(value)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("case", "settings"), _RUNS, ids=_shown)
def test_same_weights(case: str, settings: dict[str, Any], dtype: Any, pytorch: Pytorch) -> None:
    _, name, arguments = _CASES[case]
    trained = train(settings, dtype=dtype).weights
    tolerance = 1e-5 if dtype == np.float32 else 1e-10
    for weight, expected in pytorch(lambda: _torch(name, arguments, dtype)).items():
        assert trained[weight].dtype == dtype
        np.testing.assert_allclose(trained[weight], expected, rtol=tolerance, atol=tolerance / 10)
