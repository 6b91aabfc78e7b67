"""Gradients of activations."""

from __future__ import annotations

from typing import Final

from popc.cost.formulas.activation import STEPS
from popc.cost.rules.common import CostRule, steps

__all__ = ["RULES"]

_SINGLE: Final = {
    "Gelu": "gelu_erf_grad",
    "Relu": "relu_grad",
    "Sigmoid": "relu_grad",
    "Swish": "swish_grad",
    "Tanh": "relu_grad",
}

# Without a vertex of its own, a gradient repeats the formula and multiplies twice.
RULES: Final[dict[str, CostRule]] = {
    f"{name}Grad": steps(_SINGLE[name]) if name in _SINGLE else steps(*names, "add", "add")
    for name, names in STEPS.items()
}
