"""Gradient cases of activation functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final

import numpy as np

from popc_runtime.format import Array
from tests.support.gradients import Case

__all__ = ["CASES"]


def _functional(name: str, *extra: Any, **options: Any) -> Callable[..., Any]:
    """A function of torch.nn.functional with further arguments."""

    def function(*operands: Any) -> Any:
        import torch

        return getattr(torch.nn.functional, name)(*operands, *extra, **options)

    return function


def _swish(alpha: float) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        import torch

        return x * torch.sigmoid(alpha * x)

    return function


def _hard_sigmoid(alpha: float, beta: float) -> Callable[..., Any]:
    """By a function that, as ours, has slope 0 at both ends."""

    def function(x: Any) -> Any:
        import torch

        return torch.nn.functional.hardtanh(alpha * x + beta, 0.0, 1.0)

    return function


def _threshold(alpha: float) -> Callable[..., Any]:
    return _functional("threshold", alpha, 0.0)


def _erf(x: Any) -> Any:
    import torch

    return torch.erf(x)


# Kinks are at multiples of 1/2, which the smooth cases keep away from.
_SMOOTH: Final[Array] = np.array(
    [
        [-9.2, -4.3, -3.1, -2.8, -1.2, -0.7],
        [-0.3, 0.2, 0.8, 1.7, 2.9, 3.2],
        [4.1, 7.7, 9.1, 0.1, -0.1, 1.1],
    ]
)
_KINKS: Final[Array] = np.arange(-8, 9) / 2

# Name of the case, attributes, PyTorch's function
_ROWS: Final[tuple[tuple[str, Mapping[str, Any], Callable[..., Any] | None], ...]] = (
    ("Celu", {}, _functional("celu")),
    ("Celu:wide", {"alpha": 2.0}, _functional("celu", 2.0)),
    ("Elu", {}, _functional("elu")),
    ("Elu:steep", {"alpha": 1.5}, _functional("elu", 1.5)),
    ("Elu:folding", {"alpha": -0.5}, _functional("elu", -0.5)),
    ("Elu:flat", {"alpha": 0.0}, None),
    ("Erf", {}, _erf),
    ("Gelu", {}, _functional("gelu")),
    ("Gelu:tanh", {"approximate": "tanh"}, _functional("gelu", approximate="tanh")),
    ("HardSigmoid", {}, _hard_sigmoid(0.2, 0.5)),
    ("HardSigmoid:falling", {"alpha": -0.25, "beta": 0.25}, _hard_sigmoid(-0.25, 0.25)),
    ("HardSwish", {}, _functional("hardswish")),
    ("LeakyRelu", {}, _functional("leaky_relu")),
    ("LeakyRelu:steep", {"alpha": 2.0}, _functional("leaky_relu", 2.0)),
    ("LeakyRelu:folding", {"alpha": -0.5}, _functional("leaky_relu", -0.5)),
    ("Mish", {}, _functional("mish")),
    ("Relu", {}, _functional("relu")),
    ("Selu", {}, _functional("selu")),
    ("Selu:folding", {"alpha": -1.5, "gamma": 2.0}, None),
    ("Shrink", {}, _functional("hardshrink", 0.5)),
    ("Shrink:soft", {"lambd": 1.5, "bias": 1.5}, _functional("softshrink", 1.5)),
    ("Sigmoid", {}, _functional("sigmoid")),
    ("Softplus", {}, _functional("softplus")),
    ("Softsign", {}, _functional("softsign")),
    ("Swish", {}, _functional("silu")),
    ("Swish:steep", {"alpha": 1.5}, _swish(1.5)),
    ("Tanh", {}, _functional("tanh")),
    ("ThresholdedRelu", {}, _threshold(1.0)),
    ("ThresholdedRelu:high", {"alpha": 2.5}, _threshold(2.5)),
)


def _case(row: str, attributes: Mapping[str, Any], torch: Any, *, smooth: bool) -> Case:
    op_type, _, name = row.partition(":")
    return Case(
        op_type,
        [_SMOOTH if smooth else _KINKS],
        attributes,
        name=name if smooth else f"{name}@kinks",
        opset=24,
        ir=op_type == "Celu",  # which ONNX has for float32 only
        smooth=smooth,
        torch=torch,
    )


_BOUNDS: Final = {"both": (-1.6, 1.6), "low": (-1.6, None), "high": (None, 1.6), "crossed": (1, -1)}


def _clip(name: str, low: float | None, high: float | None) -> Case:
    bounds = [None if bound is None else np.array(float(bound)) for bound in (low, high)]
    constants = [index for index, bound in enumerate(bounds, 1) if bound is not None]
    return Case("Clip", [_SMOOTH, *bounds], name=name, constants=tuple(constants), torch=_clamp)


def _clamp(x: Any, low: Any, high: Any) -> Any:
    import torch

    return torch.clamp(x, low, high)


def _prelu(x: Any, slope: Any) -> Any:
    """PyTorch's own takes slopes of channels only."""
    import torch

    return torch.where(x > 0, x, slope * x)


def _fake_quantize(x: Any) -> Any:
    import torch

    return torch.fake_quantize_per_tensor_affine(x, 0.25, 3, 0, 15)


_SLOPES: Final = {"scalar": (), "last": (6,), "channel": (3, 1), "full": (3, 6), "one": (1, 1)}

CASES: Final[list[Case]] = [
    *(_case(name, attributes, it, smooth=True) for name, attributes, it in _ROWS),
    *(_case(name, attributes, it, smooth=False) for name, attributes, it in _ROWS if it),
    *(_clip(name, low, high) for name, (low, high) in _BOUNDS.items()),
    Case("Clip", [_SMOOTH, np.array(-1.6), np.array(1.6)], name="run time", torch=_clamp),
    # At a bound, PyTorch's clamp has slope 1 and its hardtanh, as we, 0.
    Case(
        "Clip",
        [_KINKS],
        {"min": -1.5, "max": 1.5},
        name="kinks",
        opset=6,
        smooth=False,
        torch=_functional("hardtanh", -1.5, 1.5),
    ),
    *(
        Case(
            "PRelu",
            [_SMOOTH, np.linspace(-0.5, 1.5, 18)[: prod(shape)].reshape(shape)],
            name=name,
            torch=_prelu,
        )
        for name, shape in _SLOPES.items()
    ),
    Case("PRelu", [_KINKS, np.array(0.25)], name="kinks", smooth=False, torch=_prelu),
    Case(
        "FakeQuantize",
        [np.array([-2.0, -0.9, -0.86, -0.7, 0.0, 0.13, 2.9, 3.1, 3.2, 9.0])],
        {"scale": 0.25, "low": -3.0, "high": 12.0},
        ir=True,
        smooth=False,
        torch=_fake_quantize,
    ),
]
