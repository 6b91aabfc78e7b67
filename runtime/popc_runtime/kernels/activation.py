"""Activation functions: unary maps that are more than one ufunc.

Each is a chain of ufuncs over a block (see `kernels.core.blocking`).  The formulas are chosen so
that no step loses accuracy to cancellation and overflow ends in the right limit: a sigmoid, for
example, is 1 / (1 + exp(-x)), and where exp overflows the quotient is 0.

The same chains are the epilogues of convolutions and matrix products: `activation_calls`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import pi, sqrt
from typing import Any, Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.format.program import Attributes
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, Scratch
from popc_runtime.kernels.core.blocking import blocked
from popc_runtime.kernels.core.negation import negative
from popc_runtime.kernels.core.special import erf_steps, gelu_steps
from popc_runtime.kernels.quantize import fake_quantize_steps

__all__ = [
    "ACTIVATIONS",
    "KERNELS",
    "ActivationSteps",
    "activation_calls",
    "bit_mask",
    "bits_of",
    "constant",
    "number",
]

# (attributes, out, x, temporaries..., masks...) -> calls; ``out`` may be ``x``.
ActivationSteps: TypeAlias = Callable[..., Iterator[Call]]

_ONE_CLIP_CALL: Final = 1 << 13  # elements from which one slower call beats two fast ones


@dataclass(frozen=True, slots=True)
class Activation:
    """The chain of an activation, and how many temporary blocks it needs."""

    steps: ActivationSteps
    temporaries: int = 0
    masks: int = 0


def activation_calls(
    name: str, attributes: Attributes, x: Array, out: Array, scratch: Scratch
) -> tuple[Call, ...]:
    """The calls that apply activation ``name`` to ``x`` (``out`` has its shape; may be ``x``).

    ``x`` and ``out`` may differ in float width: the work is done in float32 then.

    Raises:
        KeyError: there is no activation of that name (`ACTIVATIONS` lists them).
    """
    activation = ACTIVATIONS[name]
    mixed = x.dtype != out.dtype
    return blocked(
        partial(activation.steps, attributes),
        out,
        [x],
        scratch,
        temporaries=activation.temporaries,
        masks=activation.masks,
        work=np.float32 if mixed else None,
    )


def constant(value: float, like: Array) -> Array:
    """A 0-d array: the cheapest scalar operand of a ufunc."""
    return np.asarray(value, like.dtype)


def number(attributes: Attributes, name: str, default: float) -> float:
    """A number among the attributes."""
    value = attributes.get(name, default)
    if not isinstance(value, (int, float)):
        raise ValueError(f"attribute {name!r} must be a number")
    return float(value)


def bit_mask(mask: Array, bits: Array) -> Call:
    """The call that sets the signed integers ``bits`` to all ones where ``mask``, else to 0."""
    # Bytes are widened to a copy first, which numpy negates rightly.
    return partial(np.negative, mask.view(np.int8), out=bits, dtype=bits.dtype)  # noqa: TID251


def bits_of(array: Array) -> Array:
    """The same memory as signed integers."""
    return array.view(f"i{array.itemsize}")


def _relu(attributes: Attributes, out: Array, x: Array) -> Iterator[Call]:
    del attributes
    yield partial(np.maximum, x, constant(0, x), out=out)


def _clip(attributes: Attributes, out: Array, x: Array) -> Iterator[Call]:
    """Attributes ``min`` and ``max``, each optional; where min > max the result is max."""
    yield from _clip_steps(attributes.get("min"), attributes.get("max"), x, out)


def _clip_steps(low: Any, high: Any, x: Array, out: Array) -> Iterator[Call]:
    lowest = None if low is None else np.asarray(low, x.dtype)
    highest = None if high is None else np.asarray(high, x.dtype)
    if lowest is None and highest is None:
        yield partial(np.copyto, out, x)
    elif lowest is not None and highest is not None and x.size >= _ONE_CLIP_CALL:
        yield partial(x.clip, lowest, highest, out=out)
    else:
        if lowest is not None:
            yield partial(np.maximum, x, lowest, out=out)
        if highest is not None:
            yield partial(np.minimum, x if lowest is None else out, highest, out=out)


def _leaky_relu(attributes: Attributes, out: Array, x: Array, scaled: Array) -> Iterator[Call]:
    alpha = number(attributes, "alpha", 0.01)
    if 0 < alpha <= 1:
        yield partial(np.multiply, x, constant(alpha, x), out=scaled)
        yield partial(np.maximum, x, scaled, out=out)
    else:
        yield partial(np.minimum, x, constant(0, x), out=scaled)
        yield partial(np.multiply, scaled, constant(alpha, x), out=scaled)
        yield partial(np.maximum, x, constant(0, x), out=out)
        yield partial(np.add, out, scaled, out=out)


def _exponential_below(
    out: Array, x: Array, below: Array, *, scale: float, divide: float = 1, factor: float = 1
) -> Iterator[Call]:
    """Elu and its kin: factor * (x if x >= 0 else scale * (exp(x / divide) - 1))."""
    yield partial(np.minimum, x, constant(0, x), out=below)
    if divide != 1:
        yield partial(np.divide, below, constant(divide, x), out=below)
    yield partial(np.expm1, below, out=below)
    if scale * factor != 1:
        yield partial(np.multiply, below, constant(scale * factor, x), out=below)
    yield partial(np.maximum, x, constant(0, x), out=out)
    if factor != 1:
        yield partial(np.multiply, out, constant(factor, x), out=out)
    yield partial(np.add, out, below, out=out)


def _elu(attributes: Attributes, out: Array, x: Array, below: Array) -> Iterator[Call]:
    return _exponential_below(out, x, below, scale=number(attributes, "alpha", 1.0))


def _celu(attributes: Attributes, out: Array, x: Array, below: Array) -> Iterator[Call]:
    alpha = number(attributes, "alpha", 1.0)
    return _exponential_below(out, x, below, scale=alpha, divide=alpha)


def _selu(attributes: Attributes, out: Array, x: Array, below: Array) -> Iterator[Call]:
    alpha = number(attributes, "alpha", 1.67326319217681884765625)
    gamma = number(attributes, "gamma", 1.05070102214813232421875)
    return _exponential_below(out, x, below, scale=alpha, factor=gamma)


def _over_one_plus_exp(out: Array, x: Array, h: Array) -> Iterator[Call]:
    """The quotient x / (1 + exp(h)); ``h`` is overwritten."""
    yield partial(np.exp, h, out=h)
    yield partial(np.add, h, constant(1, x), out=h)
    yield partial(np.divide, x, h, out=out)


def _gelu(attributes: Attributes, out: Array, x: Array, *extra: Array) -> Iterator[Call]:
    """By the normal distribution, or nearly: (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), u cubic."""
    if attributes.get("approximate", "none") != "tanh":
        yield from gelu_steps(out, x, *extra)
        return
    h = extra[0]
    linear = -2 * sqrt(2 / pi)
    yield partial(np.square, x, out=h)
    yield partial(np.multiply, h, constant(linear * 0.044715, x), out=h)
    yield partial(np.add, h, constant(linear, x), out=h)
    yield partial(np.multiply, h, x, out=h)
    yield from _over_one_plus_exp(out, x, h)


def _hard_sigmoid(attributes: Attributes, out: Array, x: Array) -> Iterator[Call]:
    alpha = number(attributes, "alpha", 0.2)
    beta = number(attributes, "beta", 0.5)
    yield partial(np.multiply, x, constant(alpha, x), out=out)
    yield partial(np.add, out, constant(beta, x), out=out)
    yield from _clip_steps(0, 1, out, out)


def _hard_swish(attributes: Attributes, out: Array, x: Array, gate: Array) -> Iterator[Call]:
    del attributes
    yield from _hard_sigmoid({"alpha": 1 / 6, "beta": 0.5}, gate, x)
    yield partial(np.multiply, x, gate, out=out)


def _mish(attributes: Attributes, out: Array, x: Array, e: Array, n: Array) -> Iterator[Call]:
    """With e = exp(x), n = e (e + 2): x tanh(log(1 + e)) = x n / (n + 2); above 20 it is x."""
    del attributes
    two = constant(2, x)
    yield partial(np.minimum, x, constant(20, x), out=e)
    yield partial(np.exp, e, out=e)
    yield partial(np.add, e, two, out=n)
    yield partial(np.multiply, n, e, out=n)
    yield partial(np.add, n, two, out=e)
    yield partial(np.divide, n, e, out=n)
    yield partial(np.multiply, x, n, out=out)


def _erf(attributes: Attributes, out: Array, x: Array, *extra: Array) -> Iterator[Call]:
    del attributes
    return erf_steps(out, x, *extra)


def _shrink(
    attributes: Attributes, out: Array, x: Array, part: Array, select: Array, mask: Array
) -> Iterator[Call]:
    """Bias is added to x below -lambd, subtracted above lambd; between them it is 0."""
    bias = constant(number(attributes, "bias", 0.0), x)
    lambd = number(attributes, "lambd", 0.5)
    yield partial(np.less, x, constant(-lambd, x), out=mask)
    yield bit_mask(mask, bits_of(select))
    yield partial(np.add, x, bias, out=part)
    yield partial(np.bitwise_and, bits_of(part), bits_of(select), out=bits_of(part))
    yield partial(np.greater, x, constant(lambd, x), out=mask)
    yield bit_mask(mask, bits_of(select))
    yield partial(np.subtract, x, bias, out=out)
    yield partial(np.bitwise_and, bits_of(out), bits_of(select), out=bits_of(out))
    yield partial(np.bitwise_or, bits_of(out), bits_of(part), out=bits_of(out))


def _sigmoid(attributes: Attributes, out: Array, x: Array) -> Iterator[Call]:
    del attributes
    yield partial(negative, x, out=out)
    yield partial(np.exp, out, out=out)
    yield partial(np.add, out, constant(1, x), out=out)
    yield partial(np.reciprocal, out, out=out)


def _softplus(attributes: Attributes, out: Array, x: Array, tail: Array) -> Iterator[Call]:
    """Without overflow: log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|))."""
    del attributes
    yield partial(np.absolute, x, out=tail)
    yield partial(negative, tail, out=tail)
    yield partial(np.exp, tail, out=tail)
    yield partial(np.log1p, tail, out=tail)
    yield partial(np.maximum, x, constant(0, x), out=out)
    yield partial(np.add, out, tail, out=out)


def _softsign(attributes: Attributes, out: Array, x: Array, size: Array) -> Iterator[Call]:
    del attributes
    yield partial(np.absolute, x, out=size)
    yield partial(np.add, size, constant(1, x), out=size)
    yield partial(np.divide, x, size, out=out)


def _swish(attributes: Attributes, out: Array, x: Array, h: Array) -> Iterator[Call]:
    """Written as one quotient: x sigmoid(alpha x) = x / (1 + exp(-alpha x))."""
    alpha = number(attributes, "alpha", 1.0)
    yield partial(np.multiply, x, constant(-alpha, x), out=h)
    yield from _over_one_plus_exp(out, x, h)


def _tanh(attributes: Attributes, out: Array, x: Array) -> Iterator[Call]:
    del attributes
    yield partial(np.tanh, x, out=out)


def _thresholded_relu(
    attributes: Attributes, out: Array, x: Array, select: Array, mask: Array
) -> Iterator[Call]:
    """Zero up to alpha, x above."""
    alpha = number(attributes, "alpha", 1.0)
    yield partial(np.greater, x, constant(alpha, x), out=mask)
    yield bit_mask(mask, bits_of(select))
    yield partial(np.bitwise_and, bits_of(x), bits_of(select), out=bits_of(out))


ACTIVATIONS: Final[dict[str, Activation]] = {
    "Celu": Activation(_celu, temporaries=1),
    "Clip": Activation(_clip),
    "Elu": Activation(_elu, temporaries=1),
    "Erf": Activation(_erf, temporaries=3),
    "FakeQuantize": Activation(fake_quantize_steps),
    "Gelu": Activation(_gelu, temporaries=3),
    "HardSigmoid": Activation(_hard_sigmoid),
    "HardSwish": Activation(_hard_swish, temporaries=1),
    "LeakyRelu": Activation(_leaky_relu, temporaries=1),
    "Mish": Activation(_mish, temporaries=2),
    "Relu": Activation(_relu),
    "Selu": Activation(_selu, temporaries=1),
    "Shrink": Activation(_shrink, temporaries=2, masks=1),
    "Sigmoid": Activation(_sigmoid),
    "Softplus": Activation(_softplus, temporaries=1),
    "Softsign": Activation(_softsign, temporaries=1),
    "Swish": Activation(_swish, temporaries=1),
    "Tanh": Activation(_tanh),
    "ThresholdedRelu": Activation(_thresholded_relu, temporaries=1, masks=1),
}


def _kernel(name: str) -> Kernel:
    def kernel(binding: Binding) -> Calls:
        x, out = binding.input(0), binding.output()
        return activation_calls(name, binding.attributes, x, out, binding.scratch)

    return kernel


def _shrink_kernel(binding: Binding) -> Calls:
    """Shrink also takes integers, with limit and bias that need not be: computed in float64."""
    x, out = binding.input(0), binding.output()
    activation = ACTIVATIONS["Shrink"]
    return blocked(
        partial(activation.steps, binding.attributes),
        out,
        [x],
        binding.scratch,
        temporaries=activation.temporaries,
        masks=activation.masks,
        work=np.float64 if x.dtype.kind in "iu" else None,
    )


def _prelu(binding: Binding) -> Calls:
    """Below 0, x times a slope, which broadcasts to x."""
    x, slope = binding.input(0), binding.input(1)
    fixed = binding.is_constant(1) and bool(np.all((slope > 0) & (slope <= 1)))
    steps = _gentle_prelu_steps if fixed else _prelu_steps
    return blocked(steps, binding.output(), [x, slope], binding.scratch, temporaries=1)


def _gentle_prelu_steps(out: Array, x: Array, slope: Array, below: Array) -> Iterator[Call]:
    """For slopes in (0, 1]: there x >= slope * x exactly where x >= 0."""
    yield partial(np.multiply, x, slope, out=below)
    yield partial(np.maximum, x, below, out=out)


def _prelu_steps(out: Array, x: Array, slope: Array, below: Array) -> Iterator[Call]:
    yield partial(np.minimum, x, constant(0, x), out=below)
    yield partial(np.multiply, below, slope, out=below)
    yield partial(np.maximum, x, constant(0, x), out=out)
    yield partial(np.add, out, below, out=out)


KERNELS: Final[dict[str, Kernel]] = {
    **{name: _kernel(name) for name in ACTIVATIONS},
    "PRelu": _prelu,
    "Shrink": _shrink_kernel,
}
