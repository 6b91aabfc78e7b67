"""Gradients of activations."""

from __future__ import annotations

from typing import Final

from popc.cost.formulas.activation import STEPS
from popc.cost.rules.common import CostRule, steps
from popc.cost.work import Work

__all__ = ["RULES"]

_SINGLE: Final = {
    "Relu": "relu_grad",
    "Sigmoid": "relu_grad",
    "Swish": "swish_grad",
    "Tanh": "relu_grad",
}


def _gelu(work: Work) -> None:
    is_tanh = work.text("approximate") == "tanh"
    steps("gelu_grad" if is_tanh else "gelu_erf_grad")(work)


# Without a vertex of its own, a gradient repeats the formula and multiplies twice.
RULES: Final[dict[str, CostRule]] = {
    **{
        f"{name}Grad": steps(_SINGLE[name]) if name in _SINGLE else steps(*names, "add", "add")
        for name, names in STEPS.items()
    },
    "GeluGrad": _gelu,
}
