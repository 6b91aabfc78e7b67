"""Functions that numpy lacks: the error function and the normal distribution's share below x.

Both come from one odd function, h(x) = log(P(x) / P(-x)), where P is the normal distribution
function: P(x) = 1 / (1 + exp(-h(x))) and erf(x) = tanh(h(sqrt(2) x) / 2).  h is smooth and nearly a
cubic, so that a ratio of two short polynomials in x squared gives h(x) / x; exp and tanh, which
numpy has as vector code, do the rest and saturate by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import pi, sqrt
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Call

__all__ = ["erf_steps", "gelu_slope_steps", "gelu_steps", "polynomial"]

# h(x) / x as a ratio of polynomials in x squared, lowest power first.  Fitted for the least
# greatest error of P: 2e-8 for |x| < 6, where P(-x) is 1e-9; the ratio stays positive beyond.
_LOGIT_TOP: Final = (
    40288.27383143733,
    4988.317365386458,
    377.6006904573348,
    9.550788253032948,
)
_LOGIT_BOTTOM: Final = (25246.931242886432, 1976.2252034542012, 147.79229427957554, 1.0)
_SQUARE_MAX: Final = 128.0  # larger squares give the same results but for overflow to nan
# erf(x) / x for |x| <= 0.5, and erfc(x) exp(x^2) for larger x, as ratios of polynomials, lowest
# power first: W. J. Cody, Rational Chebyshev approximations for the error function, 1969.
_ERF_TOP: Final = (
    3.20937758913846947e03,
    3.77485237685302021e02,
    1.13864154151050156e02,
    3.16112374387056560e00,
    1.85777706184603153e-1,
)
_ERF_BOTTOM: Final = (
    2.84423683343917062e03,
    1.28261652607737228e03,
    2.44024637934444173e02,
    2.36012909523441209e01,
    1.0,
)
_ERFC_TOP: Final = (
    1.23033935479799725e03,
    2.05107837782607147e03,
    1.71204761263407058e03,
    8.81952221241769090e02,
    2.98635138197400131e02,
    6.61191906371416295e01,
    8.88314979438837594e00,
    5.64188496988670089e-1,
    2.15311535474403846e-8,
)
_ERFC_BOTTOM: Final = (
    1.23033935480374942e03,
    3.43936767414372164e03,
    4.36261909014324716e03,
    3.29079923573345963e03,
    1.62138957456669019e03,
    5.37181101862009858e02,
    1.17693950891312499e02,
    1.57449261107098347e01,
    1.0,
)
_ERF_IS_ONE: Final = 6.0  # erfc(6) = 2e-17


def polynomial(coefficients: Sequence[float], x: Array, out: Array) -> Iterator[Call]:
    """Calls for the polynomial with ``coefficients`` (lowest power first) at ``x``, into ``out``.

    ``out`` must be other memory than ``x``.  A leading coefficient of 1 costs nothing.
    """
    *lower, last, leading = (np.asarray(value, x.dtype) for value in coefficients)
    if leading == 1:
        yield partial(np.add, x, last, out=out)
    else:
        yield partial(np.multiply, x, leading, out=out)
        yield partial(np.add, out, last, out=out)
    for constant in reversed(lower):
        yield partial(np.multiply, out, x, out=out)
        yield partial(np.add, out, constant, out=out)


def _logit_steps(
    scale: float, factor: float, x: Array, square: Array, top: Array, h: Array
) -> Iterator[Call]:
    """Calls for factor * h(scale * x) in three temporaries; the result is in ``h``."""
    # In terms of x squared; divided so that the leading coefficient below stays 1.
    weights = [scale ** (2 * (power - 3)) for power in range(4)]
    upper = [c * w * scale * factor for c, w in zip(_LOGIT_TOP, weights, strict=True)]
    lower = [c * w for c, w in zip(_LOGIT_BOTTOM, weights, strict=True)]
    yield partial(np.square, x, out=square)
    yield partial(np.minimum, square, np.asarray(_SQUARE_MAX, x.dtype), out=square)
    yield from polynomial(upper, square, top)
    yield from polynomial(lower, square, h)
    yield partial(np.divide, top, h, out=h)
    yield partial(np.multiply, h, x, out=h)


def erf_steps(out: Array, x: Array, *temporaries: Array) -> Iterator[Call]:
    """Calls for the error function of ``x``, with three temporaries.

    float32: absolute error below 1.5e-7, relative error below 3e-7.  float64: full accuracy.
    """
    if x.dtype == np.float64:
        yield partial(_erf64, x, out)
        return
    yield from _logit_steps(sqrt(2), 0.5, x, *temporaries)
    yield partial(np.tanh, temporaries[-1], out=out)


def gelu_steps(out: Array, x: Array, *temporaries: Array) -> Iterator[Call]:
    """Calls for x P(x), with P the normal distribution function and three temporaries."""
    h = temporaries[-1]
    if x.dtype == np.float64:
        yield from _normal64_steps(x, h)
        yield partial(np.multiply, x, h, out=out)
        return
    yield from _logit_steps(1.0, -1.0, x, *temporaries)
    yield partial(np.exp, h, out=h)
    yield partial(np.add, h, np.asarray(1, x.dtype), out=h)
    yield partial(np.divide, x, h, out=out)


def gelu_slope_steps(out: Array, g: Array, x: Array, *temporaries: Array) -> Iterator[Call]:
    """Calls for g (P(x) + x p(x)), with p the density of P and three temporaries."""
    density, spare, share = temporaries
    if x.dtype == np.float64:
        yield from _normal64_steps(x, share)
    else:
        yield from _logit_steps(1.0, -1.0, x, density, spare, share)
        yield partial(np.exp, share, out=share)
        yield partial(np.add, share, np.asarray(1, x.dtype), out=share)
        yield partial(np.reciprocal, share, out=share)
    yield partial(np.square, x, out=density)
    yield partial(np.multiply, density, np.asarray(-0.5, x.dtype), out=density)
    yield partial(np.exp, density, out=density)
    yield partial(np.multiply, density, x, out=density)
    yield partial(np.multiply, density, np.asarray(1 / sqrt(2 * pi), x.dtype), out=density)
    yield partial(np.add, share, density, out=share)
    yield partial(np.multiply, g, share, out=out)


def _normal64_steps(x: Array, out: Array) -> Iterator[Call]:
    """Calls for P(x) of float64 ``x``."""
    yield partial(np.multiply, x, np.asarray(sqrt(0.5)), out=out)
    yield partial(_erf64, out, out)
    yield partial(np.add, out, np.asarray(1.0), out=out)
    yield partial(np.multiply, out, np.asarray(0.5), out=out)


def _erf64(x: Array, out: Array) -> None:
    """The error function of float64 ``x``; float64 is rare enough to spend temporaries on it."""
    size = np.minimum(np.abs(x), _ERF_IS_ONE)
    near = np.minimum(size, 0.5)
    square = near * near
    below = near * _ratio(_ERF_TOP, _ERF_BOTTOM, square)
    above = 1 - np.exp(-size * size) * _ratio(_ERFC_TOP, _ERFC_BOTTOM, size)
    np.copysign(np.where(size <= 0.5, below, above), x, out=out)


def _ratio(top: Sequence[float], bottom: Sequence[float], x: Array) -> Array:
    above: Array = np.polynomial.polynomial.polyval(x, top)
    below: Array = np.polynomial.polynomial.polyval(x, bottom)
    return above / below
