"""Activations."""

from __future__ import annotations

from functools import partial

from popc_runtime.ground.hints import Final
from popc_runtime.native.maps import binary, function, unary
from popc_runtime.native.record import Encoder

__all__ = ["ENCODERS"]


# Functions of one operand.
_UNARY: Final = (
    "Celu",
    "Clip",
    "Elu",
    "Erf",
    "FakeQuantize",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Mish",
    "Relu",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Softplus",
    "Swish",
    "Tanh",
    "ThresholdedRelu",
)

ENCODERS: Final[dict[str, Encoder]] = {
    "PRelu": partial(binary, "PRelu"),
    "Softsign": partial(function, "Softsign"),
    **{name: partial(unary, name) for name in _UNARY},
}
