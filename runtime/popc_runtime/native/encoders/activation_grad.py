"""Gradients of activation functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import nan
from typing import Final, TypeAlias

from popc_runtime.format.program import Attributes
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.record import (
    MAX_RANK,
    Encoder,
    Record,
    activation_words,
    is_float32,
    tensor_words,
)
from popc_runtime.native.views import broadcast_to

__all__ = ["ENCODERS"]

_Parameters: TypeAlias = Callable[[Attributes], tuple[float, ...]]


def _number(attributes: Attributes, name: str, default: float) -> float:
    return float(str(attributes.get(name, default)))


def _given(**defaults: float) -> _Parameters:
    """Parameters that are attributes, with their defaults."""

    def parameters(attributes: Attributes) -> tuple[float, ...]:
        return tuple(_number(attributes, name, value) for name, value in defaults.items())

    return parameters


def _elu(attributes: Attributes) -> tuple[float, ...]:
    """Below 0 the slope is the first times the result plus the second, above it is the third."""
    return 1.0, _number(attributes, "alpha", 1.0), 1.0


def _celu(attributes: Attributes) -> tuple[float, ...]:
    return 1 / _number(attributes, "alpha", 1.0), 1.0, 1.0


def _selu(attributes: Attributes) -> tuple[float, ...]:
    alpha = _number(attributes, "alpha", 1.67326319217681884765625)
    gamma = _number(attributes, "gamma", 1.05070102214813232421875)
    return 1.0, alpha * gamma, gamma


def _fake_quantize(attributes: Attributes) -> tuple[float, ...]:
    low, high = (_number(attributes, name, 0.0) for name in ("low", "high"))
    return _number(attributes, "scale", 1.0), low - 1, high + 1


# Opcode -> kernel and its parameters.
_SLOPES: Final[Mapping[str, tuple[str, _Parameters]]] = {
    "CeluGrad": ("EluGrad", _celu),
    "ClipGrad": ("ClipGrad", _given(min=nan, max=nan)),
    "EluGrad": ("EluGrad", _elu),
    "ErfGrad": ("ErfGrad", _given()),
    "FakeQuantizeGrad": ("FakeQuantizeGrad", _fake_quantize),
    "GeluGrad": ("GeluGrad", _given()),
    "HardSigmoidGrad": ("HardSigmoidGrad", _given(alpha=0.2)),
    "HardSwishGrad": ("HardSwishGrad", _given()),
    "LeakyReluGrad": ("LeakyReluGrad", _given(alpha=0.01)),
    "MishGrad": ("MishGrad", _given()),
    "ReluGrad": ("ReluGrad", _given()),
    "SeluGrad": ("EluGrad", _selu),
    "ShrinkGrad": ("ShrinkGrad", _given(lambd=0.5)),
    "SigmoidGrad": ("SigmoidGrad", _given()),
    "SoftplusGrad": ("SoftplusGrad", _given()),
    "SoftsignGrad": ("SoftsignGrad", _given()),
    "SwishGrad": ("SwishGrad", _given(alpha=1.0)),
    "TanhGrad": ("TanhGrad", _given()),
    "ThresholdedReluGrad": ("ThresholdedReluGrad", _given(alpha=1.0)),
}


def _slope(opcode: str, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Operands: the gradient of the result, and the argument or the result."""
    del numbers
    out = binding.output()
    if not is_float32(binding) or out.ndim > MAX_RANK or out.size == 0:
        return None
    kernel, parameters = _SLOPES[opcode]
    if opcode == "GeluGrad" and binding.text("approximate", "none") == "tanh":
        kernel = "GeluTanhGrad"
    words = [*tensor_words(out)]
    for index in range(2):
        words += tensor_words(broadcast_to(binding.input(index), out.shape))
    given = activation_words(0, parameters(binding.attributes))[1:]
    return Record(f"{kernel}_f32", (*words, *given))


ENCODERS: Final[dict[str, Encoder]] = {name: partial(_slope, name) for name in _SLOPES}
