"""The elementwise vertices that activation functions are made of."""

from __future__ import annotations

from typing import Final

__all__ = ["STEPS", "steps_of_activation"]

STEPS: Final[dict[str, tuple[str, ...]]] = {
    "Celu": ("divide", "expm1", "add", "maximum"),
    "Clip": ("maximum", "maximum"),
    "Elu": ("expm1", "add", "maximum"),
    "Erf": ("erf",),
    "FakeQuantize": ("divide", "round", "maximum", "maximum", "add"),
    "Gelu": ("gelu_erf",),
    "HardSigmoid": ("add", "add", "maximum", "maximum"),
    "HardSwish": ("add", "add", "maximum", "maximum", "add"),
    "LeakyRelu": ("add", "maximum"),
    "Mish": ("exp", "log1p", "tanh", "add"),
    "PRelu": ("add", "maximum"),
    "Relu": ("relu",),
    "Selu": ("expm1", "add", "maximum", "add"),
    "Shrink": ("compare", "add", "add"),
    "Sigmoid": ("sigmoid",),
    "Softplus": ("exp", "log1p"),
    "Softsign": ("abs", "add", "divide"),
    "Swish": ("swish",),
    "Tanh": ("tanh",),
    "ThresholdedRelu": ("compare", "add"),
}

# Multiplications cost what additions do; they appear as "add".


def steps_of_activation(name: str, approximate: str = "") -> tuple[str, ...]:
    """The vertices of an activation; popnn has a non-linearity for each form of Gelu."""
    return ("gelu",) if (name, approximate) == ("Gelu", "tanh") else STEPS[name]
