"""The published formulas of the optimizers, written down once more, and settings that mean them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from popc_runtime.format import Array

__all__ = ["CASES", "Formula", "State"]

State: TypeAlias = dict[str, Any]
# weight, gradient, state of the weight (empty at first), number of the update from 1 -> weight
Formula: TypeAlias = Callable[[Array, Array, State, int], Array]


def _sgd(lr: float, wd: float = 0.0, mm: float = 0.0, dm: float = 0.0) -> Formula:
    def update(w: Array, g: Array, state: State, t: int) -> Array:
        del t
        state["v"] = state.get("v", 0.0) * mm + (1 - dm) * (g + wd * w)
        return np.asarray(w - lr * state["v"])

    return update


def _adam(
    lr: float,
    *,
    wd: float = 0.0,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-6,
    bias: bool = True,
    lamb: float | None = None,
    infinity: bool = False,
) -> Formula:
    def update(w: Array, g: Array, state: State, t: int) -> Array:
        m = state["m"] = beta1 * state.get("m", 0.0) + (1 - beta1) * g
        before = np.asarray(state.get("v", np.zeros_like(g)))
        if infinity:
            v = state["v"] = np.maximum(beta2 * before, np.abs(g))
            size = v
        else:
            v = state["v"] = beta2 * before + (1 - beta2) * g * g
            size = np.sqrt(v / (1 - beta2**t) if bias else v)
        x = (m / (1 - beta1**t) if bias else m) / (size + eps) + wd * w
        if lamb is None:
            return np.asarray(w - lr * x)
        norm, step = float(np.linalg.norm(w)), float(np.linalg.norm(x))
        return np.asarray(w - lr * min(norm, lamb) / step * x if norm and step else w - lr * x)

    return update


def _adaptive(
    lr: float,
    *,
    alpha: float | None = None,
    wd: float = 0.0,
    mm: float = 0.0,
    eps: float = 1e-6,
    centered: bool = False,
    tf: bool = False,
    delta: bool = False,
) -> Formula:
    """``alpha``: ``None`` is AdaGrad."""

    def update(w: Array, g: Array, state: State, t: int) -> Array:
        del t
        keep, new = (1.0, 1.0) if alpha is None else (alpha, 1 - alpha)
        v = state["v"] = keep * state.get("v", np.full_like(g, float(tf))) + new * g * g
        if centered:
            state["a"] = keep * state.get("a", 0.0) + new * g
            v = v - state["a"] ** 2
        x = g / np.sqrt(v + eps) if tf else g / (np.sqrt(v) + eps)
        if delta:
            u = state.get("u", np.zeros_like(g))
            x = g * np.sqrt(u + eps) / np.sqrt(v + eps)
            state["u"] = keep * u + new * x * x
        inner, outer = (lr, 1.0) if tf and mm else (1.0, lr)
        b = state["b"] = mm * state.get("b", 0.0) + inner * x
        return np.asarray(w - outer * (b + wd * w))

    return update


CASES: Final[dict[str, tuple[dict[str, Any], Formula]]] = {
    "sgd0-dampening": (
        {"type": "sgd", "dampening": 0.25, "weight_decay": 0.1},
        _sgd(0.1, 0.1, 0.0, 0.25),
    ),
    "sgd1-velocity-scaling": (
        {"type": "sgd", "momentum": 0.7, "velocity_scaling": 8, "weight_decay": 0.1},
        _sgd(0.1, 0.1, 0.7),
    ),
    "sgd2-velocity-scaling": (
        {
            "type": "sgd",
            "momentum": 0.7,
            "velocity_scaling": 8,
            "dampening": 0.5,
            "accumulator_and_momentum": "separate",
        },
        _sgd(0.1, 0.0, 0.7, 0.5),
    ),
    "adam": ({"type": "adam", "weight_decay": 0.2, "learning_rate": 0.02}, _adam(0.02, wd=0.2)),
    "adam_no_bias": ({"type": "adam_no_bias", "learning_rate": 0.01}, _adam(0.01, bias=False)),
    "adamax": (
        {"type": "adamax", "learning_rate": 0.01, "eps": 0.01},
        _adam(0.01, eps=0.01, infinity=True),
    ),
    "lamb": (
        {"type": "lamb", "learning_rate": 0.02, "weight_decay": 0.1},
        _adam(0.02, wd=0.1, lamb=10.0),
    ),
    "lamb-limit": (
        {"type": "lamb", "learning_rate": 0.02, "max_weight_norm": 0.5},
        _adam(0.02, lamb=0.5),
    ),
    "lamb-unlimited": (
        {"type": "lamb", "learning_rate": 0.02, "max_weight_norm": float("inf")},
        _adam(0.02, lamb=float("inf")),
    ),
    "lamb_no_bias": (
        {"type": "lamb_no_bias", "learning_rate": 0.02, "weight_decay": 0.1},
        _adam(0.02, wd=0.1, bias=False, lamb=10.0),
    ),
    "adagrad": ({"type": "adagrad", "weight_decay": 0.1}, _adaptive(0.01, wd=0.1)),
    "rmsprop": (
        {"type": "rmsprop", "weight_decay": 0.1, "momentum": 0.5},
        _adaptive(0.01, alpha=0.99, wd=0.1, mm=0.5),
    ),
    "rmsprop-tf": (
        {"type": "rmsprop", "rmsprop_tf_variant": True, "eps": 0.01, "alpha": 0.9},
        _adaptive(0.01, alpha=0.9, tf=True, eps=0.01),
    ),
    "rmsprop-tf-momentum": (
        {"type": "rmsprop", "rmsprop_tf_variant": True, "momentum": 0.6, "weight_decay": 0.1},
        _adaptive(0.01, alpha=0.99, tf=True, mm=0.6, wd=0.1),
    ),
    "centered_rmsprop": (
        {"type": "centered_rmsprop", "eps": 0.01},
        _adaptive(0.01, alpha=0.99, centered=True, eps=0.01),
    ),
    "centered_rmsprop-tf": (
        {"type": "centered_rmsprop", "rmsprop_tf_variant": True, "momentum": 0.1},
        _adaptive(0.01, alpha=0.99, centered=True, tf=True, mm=0.1),
    ),
    "adadelta": (
        {"type": "adadelta", "learning_rate": 1.0, "momentum": 0.2, "weight_decay": 0.01},
        _adaptive(1.0, alpha=0.99, delta=True, mm=0.2, wd=0.01),
    ),
}
