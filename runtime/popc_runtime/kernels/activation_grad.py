"""Gradients of activation functions: the gradient times the slope, over blocks.

The operands are the gradient g of the result, and v: the result y where the slope follows from it
(it lives anyway: the next layer needs it), else the argument x.  The slope is computed so that it
ends in its limit where x is large; a slope of 0 gives a gradient of 0, whatever g is, where it is
chosen by a comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import pi, sqrt
from typing import Any, Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.format.program import Attributes
from popc_runtime.kernels.activation import ActivationSteps, bit_mask, bits_of, constant, number
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.blocking import blocked
from popc_runtime.kernels.core.negation import negative
from popc_runtime.kernels.core.special import gelu_slope_steps

__all__ = ["KERNELS"]

# Beyond, slopes are 0 or 1; up to there, no exponential overflows.
_CUBIC_LIMIT: Final = 9.5  # of the argument of a tanh Gelu
_MISH_LIMITS: Final = (-100.0, 20.0)  # m * m is about exp(80) at 20, which float32 holds
_SWISH_LIMIT: Final = 80.0  # exp(88) is the last that float32 holds


@dataclass(frozen=True, slots=True)
class _Slope:
    """Steps (attributes, out, g, v, temporaries..., masks...) and how many of both they need.

    ``of_half`` are others for float16 alone, which is not converted for them.
    """

    steps: ActivationSteps
    temporaries: int = 1
    masks: int = 0
    of_half: ActivationSteps | None = None


def _masked(out: Array, g: Array, mask: Array, select: Array) -> Iterator[Call]:
    """g where ``mask``, else 0."""
    yield bit_mask(mask, bits_of(select))
    yield partial(np.bitwise_and, bits_of(g), bits_of(select), out=bits_of(out))


def _kept(out: Array, mask: Array, select: Array, a: Array, b: Array) -> Iterator[Call]:
    """a where ``mask``, else b: ((a ^ b) & mask) ^ b.  ``a`` is overwritten."""
    bits, other = bits_of(a), bits_of(b)
    yield bit_mask(mask, bits_of(select))
    yield partial(np.bitwise_xor, bits, other, out=bits)
    yield partial(np.bitwise_and, bits, bits_of(select), out=bits)
    yield partial(np.bitwise_xor, bits, other, out=bits_of(out))


# -- constant slopes between bounds ----------------------------------------------------------------


def _between(
    low: Any, high: Any, out: Array, g: Array, v: Array, select: Array, mask: Array, other: Array
) -> Iterator[Call]:
    """g where low < v < high; a bound may be ``None``."""
    if low is None and high is None:
        yield partial(np.copyto, out, g)
        return
    if low is not None:
        yield partial(np.greater, v, constant(low, v), out=mask)
    if high is not None:
        yield partial(np.less, v, constant(high, v), out=mask if low is None else other)
    if low is not None and high is not None:
        yield partial(np.logical_and, mask, other, out=mask)
    yield from _masked(out, g, mask, select)


def _relu(attributes: Attributes, out: Array, g: Array, *rest: Array) -> Iterator[Call]:
    del attributes
    y, select, mask = rest
    yield partial(np.greater, y, constant(0, y), out=mask)
    yield from _masked(out, g, mask, select)


def _relu_of_half(attributes: Attributes, out: Array, g: Array, *rest: Array) -> Iterator[Call]:
    """Compare bits: numpy is a hundred times slower on float16.  Less 1, all up to infinity fit."""
    del attributes
    y, select, mask = rest
    bits = select.view(np.uint16)
    yield partial(np.subtract, y.view(np.uint16), np.asarray(1, np.uint16), out=bits)
    yield partial(np.less, bits, np.asarray(0x7C00, np.uint16), out=mask)
    yield from _masked(out, g, mask, select)


def _thresholded_relu(attributes: Attributes, out: Array, g: Array, *rest: Array) -> Iterator[Call]:
    x, select, mask = rest
    yield partial(np.greater, x, constant(number(attributes, "alpha", 1.0), x), out=mask)
    yield from _masked(out, g, mask, select)


def _shrink(attributes: Attributes, out: Array, g: Array, *rest: Array) -> Iterator[Call]:
    x, select, mask = rest
    yield partial(np.absolute, x, out=select)
    limit = constant(number(attributes, "lambd", 0.5), x)
    yield partial(np.greater, select, limit, out=mask)
    yield from _masked(out, g, mask, select)


def _clip(attributes: Attributes, out: Array, g: Array, *rest: Array) -> Iterator[Call]:
    """Zero where the result is a bound, which an argument that equals the bound also gives."""
    return _between(attributes.get("min"), attributes.get("max"), out, g, *rest)


def _hard_sigmoid(attributes: Attributes, out: Array, g: Array, *rest: Array) -> Iterator[Call]:
    y, scaled, select, mask, other = rest
    yield partial(np.multiply, g, constant(number(attributes, "alpha", 0.2), y), out=scaled)
    yield from _between(0, 1, out, scaled, y, select, mask, other)


def _fake_quantize(attributes: Attributes, out: Array, g: Array, *rest: Array) -> Iterator[Call]:
    """The gradient as if rounding were the identity: g where the integer is within the limits."""
    x, level, select, mask, other = rest
    low, high = number(attributes, "low", 0), number(attributes, "high", 0)
    yield partial(np.divide, x, constant(number(attributes, "scale", 1), x), out=level)
    yield partial(np.rint, level, out=level)
    yield from _between(low - 1, high + 1, out, g, level, select, mask, other)


# -- other pieces ----------------------------------------------------------------------------------


def _leaky_relu(attributes: Attributes, out: Array, g: Array, *rest: Array) -> Iterator[Call]:
    """The argument serves as well as the result, and must if alpha is negative."""
    v, scaled, select, mask = rest
    yield partial(np.multiply, g, constant(number(attributes, "alpha", 0.01), g), out=scaled)
    yield partial(np.less_equal, v, constant(0, v), out=mask)
    yield from _kept(out, mask, select, scaled, g)


def _exponential_below(
    out: Array, g: Array, rest: tuple[Array, ...], *, factor: float, at_zero: float, above: float
) -> Iterator[Call]:
    """Elu and its kin: below 0 the slope is ``factor`` times the result plus ``at_zero``."""
    y, slope, select, mask = rest
    yield partial(np.minimum, y, constant(0, y), out=slope)
    if factor != 1:
        yield partial(np.multiply, slope, constant(factor, y), out=slope)
    yield partial(np.add, slope, constant(at_zero, y), out=slope)
    if above != at_zero:
        yield partial(np.less_equal, y, constant(0, y), out=mask)
        yield from _kept(slope, mask, select, slope, constant(above, y))
    yield partial(np.multiply, g, slope, out=out)


def _elu(attributes: Attributes, out: Array, g: Array, *rest: Array) -> Iterator[Call]:
    alpha = number(attributes, "alpha", 1.0)
    return _exponential_below(out, g, rest, factor=1, at_zero=alpha, above=1)


def _celu(attributes: Attributes, out: Array, g: Array, *rest: Array) -> Iterator[Call]:
    alpha = number(attributes, "alpha", 1.0)
    return _exponential_below(out, g, rest, factor=1 / alpha, at_zero=1, above=1)


def _selu(attributes: Attributes, out: Array, g: Array, *rest: Array) -> Iterator[Call]:
    alpha = number(attributes, "alpha", 1.67326319217681884765625)
    gamma = number(attributes, "gamma", 1.05070102214813232421875)
    return _exponential_below(out, g, rest, factor=1, at_zero=alpha * gamma, above=gamma)


def _hard_swish(attributes: Attributes, out: Array, g: Array, *rest: Array) -> Iterator[Call]:
    """0 up to -3, then (x + 3/2) / 3, and 1 from 3 on."""
    del attributes
    x, slope, select, mask = rest
    yield partial(np.add, x, constant(1.5, x), out=slope)
    yield partial(np.multiply, slope, constant(1 / 3, x), out=slope)
    yield partial(np.less, x, constant(3, x), out=mask)
    yield from _kept(slope, mask, select, slope, constant(1, x))
    yield partial(np.greater, x, constant(-3, x), out=mask)
    yield from _masked(slope, slope, mask, select)
    yield partial(np.multiply, g, slope, out=out)


# -- smooth functions ------------------------------------------------------------------------------


def _sigmoid(attributes: Attributes, out: Array, g: Array, y: Array, h: Array) -> Iterator[Call]:
    del attributes
    yield partial(np.subtract, constant(1, y), y, out=h)
    yield partial(np.multiply, h, y, out=h)
    yield partial(np.multiply, g, h, out=out)


def _tanh(attributes: Attributes, out: Array, g: Array, y: Array, h: Array) -> Iterator[Call]:
    del attributes
    yield partial(np.square, y, out=h)
    yield partial(np.subtract, constant(1, y), h, out=h)
    yield partial(np.multiply, g, h, out=out)


def _softplus(attributes: Attributes, out: Array, g: Array, x: Array, h: Array) -> Iterator[Call]:
    del attributes
    yield partial(negative, x, out=h)
    yield partial(np.exp, h, out=h)
    yield partial(np.add, h, constant(1, x), out=h)
    yield partial(np.divide, g, h, out=out)


def _softsign(attributes: Attributes, out: Array, g: Array, x: Array, h: Array) -> Iterator[Call]:
    del attributes
    yield partial(np.absolute, x, out=h)
    yield partial(np.add, h, constant(1, x), out=h)
    yield partial(np.square, h, out=h)
    yield partial(np.divide, g, h, out=out)


def _erf(attributes: Attributes, out: Array, g: Array, x: Array, h: Array) -> Iterator[Call]:
    del attributes
    yield partial(np.square, x, out=h)
    yield partial(negative, h, out=h)
    yield partial(np.exp, h, out=h)
    yield partial(np.multiply, h, constant(2 / sqrt(pi), x), out=h)
    yield partial(np.multiply, g, h, out=out)


def _times_gate_slope(out: Array, g: Array, e: Array, s: Array, u: Array) -> Iterator[Call]:
    """g (s + s (1 - s) u): the slope of x s where s is a sigmoid, u = x times that of its argument.

    ``e`` is the exponential in s = 1 / (1 + e), and 1 - s is e s, without cancellation.
    """
    yield partial(np.add, e, constant(1, e), out=s)
    yield partial(np.reciprocal, s, out=s)
    yield partial(np.multiply, e, s, out=e)
    yield partial(np.multiply, e, u, out=e)
    yield partial(np.add, e, constant(1, e), out=e)
    yield partial(np.multiply, e, s, out=e)
    yield partial(np.multiply, g, e, out=out)


def _swish(attributes: Attributes, out: Array, g: Array, *rest: Array) -> Iterator[Call]:
    x, argument, e, s = rest
    alpha = number(attributes, "alpha", 1.0)
    if alpha != 1:
        yield partial(np.multiply, x, constant(alpha, x), out=argument)
    yield _limited(x if alpha == 1 else argument, -_SWISH_LIMIT, _SWISH_LIMIT, argument)
    yield partial(negative, argument, out=e)
    yield partial(np.exp, e, out=e)
    yield from _times_gate_slope(out, g, e, s, argument)


def _gelu(attributes: Attributes, out: Array, g: Array, *rest: Array) -> Iterator[Call]:
    """By the normal distribution, or as x s(2u) with the sigmoid s and u a cubic."""
    if attributes.get("approximate", "none") != "tanh":
        yield from gelu_slope_steps(out, g, *rest)
        return
    x, near, argument, e = rest
    linear, cubic = 2 * sqrt(2 / pi), 2 * sqrt(2 / pi) * 0.044715
    yield _limited(x, -_CUBIC_LIMIT, _CUBIC_LIMIT, near)
    yield partial(np.square, near, out=argument)
    yield partial(np.multiply, argument, constant(-cubic, x), out=e)
    yield partial(np.subtract, e, constant(linear, x), out=e)
    yield partial(np.multiply, e, near, out=e)
    yield partial(np.exp, e, out=e)
    yield partial(np.multiply, argument, constant(3 * cubic, x), out=argument)
    yield partial(np.add, argument, constant(linear, x), out=argument)
    yield partial(np.multiply, argument, near, out=argument)
    yield from _times_gate_slope(out, g, e, near, argument)


def _limited(x: Array, low: float, high: float, out: Array) -> Call:
    return partial(x.clip, constant(low, x), constant(high, x), out)


def _mish(attributes: Attributes, out: Array, g: Array, *rest: Array) -> Iterator[Call]:
    """With e = exp(x), n = e (e + 2), m = n + 2: the slope is n / m + 4 x e (e + 1) / m^2."""
    del attributes
    x, near, e, n, m = rest
    yield _limited(x, *_MISH_LIMITS, near)
    yield partial(np.exp, near, out=e)
    yield partial(np.add, e, constant(2, x), out=n)
    yield partial(np.multiply, n, e, out=n)
    yield partial(np.add, n, constant(2, x), out=m)
    yield partial(np.divide, n, m, out=n)
    yield partial(np.multiply, near, e, out=near)
    yield partial(np.divide, near, m, out=near)
    yield partial(np.add, e, constant(1, x), out=e)
    yield partial(np.divide, e, m, out=e)
    yield partial(np.multiply, near, e, out=near)
    yield partial(np.multiply, near, constant(4, x), out=near)
    yield partial(np.add, n, near, out=n)
    yield partial(np.multiply, g, n, out=out)


_SLOPES: Final[dict[str, _Slope]] = {
    "CeluGrad": _Slope(_celu, temporaries=2, masks=1),
    "ClipGrad": _Slope(_clip, masks=2),
    "EluGrad": _Slope(_elu, temporaries=2, masks=1),
    "ErfGrad": _Slope(_erf),
    "FakeQuantizeGrad": _Slope(_fake_quantize, temporaries=2, masks=2),
    "GeluGrad": _Slope(_gelu, temporaries=3),
    "HardSigmoidGrad": _Slope(_hard_sigmoid, temporaries=2, masks=2),
    "HardSwishGrad": _Slope(_hard_swish, temporaries=2, masks=1),
    "LeakyReluGrad": _Slope(_leaky_relu, temporaries=2, masks=1),
    "MishGrad": _Slope(_mish, temporaries=4),
    "ReluGrad": _Slope(_relu, masks=1, of_half=_relu_of_half),
    "SeluGrad": _Slope(_selu, temporaries=2, masks=1),
    "ShrinkGrad": _Slope(_shrink, masks=1),
    "SigmoidGrad": _Slope(_sigmoid),
    "SoftplusGrad": _Slope(_softplus),
    "SoftsignGrad": _Slope(_softsign),
    "SwishGrad": _Slope(_swish, temporaries=3),
    "TanhGrad": _Slope(_tanh),
    "ThresholdedReluGrad": _Slope(_thresholded_relu, masks=1),
}


def _kernel(slope: _Slope) -> Kernel:
    def kernel(binding: Binding) -> Calls:
        operands = [binding.input(0), binding.input(1)]
        is_half = all(array.dtype == np.float16 for array in operands)
        steps = slope.of_half if is_half and slope.of_half else slope.steps
        return blocked(
            partial(steps, binding.attributes),
            binding.output(),
            operands,
            binding.scratch,
            temporaries=slope.temporaries,
            masks=slope.masks,
            work=None if steps is slope.steps else np.float16,
        )

    return kernel


def _prelu(binding: Binding) -> Calls:
    """Operands g, x and the slope below 0, which broadcasts to x."""
    operands = [binding.input(index) for index in range(3)]
    return blocked(
        _prelu_steps, binding.output(), operands, binding.scratch, temporaries=2, masks=1
    )


def _prelu_steps(
    out: Array, g: Array, x: Array, slope: Array, scaled: Array, select: Array, mask: Array
) -> Iterator[Call]:
    yield partial(np.multiply, g, slope, out=scaled)
    yield partial(np.less_equal, x, constant(0, x), out=mask)
    yield from _kept(out, mask, select, scaled, g)


KERNELS: Final[dict[str, Kernel]] = {
    **{opcode: _kernel(slope) for opcode, slope in _SLOPES.items()},
    "PReluGrad": _prelu,
}
