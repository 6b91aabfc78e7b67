"""Functions that numpy lacks: the error function and the normal distribution's share below x.

Both come from one odd function, h(x) = log(P(x) / P(-x)), where P is the normal distribution
function: P(x) = 1 / (1 + exp(-h(x))) and erf(x) = tanh(h(sqrt(2) x) / 2).  h is smooth and nearly a
cubic, so that a short polynomial in x squared gives h(x) / x; exp and tanh, which numpy has as
vector code, do the rest and saturate by themselves.  The polynomials were fitted for the least
greatest error of P and of erf; their leading coefficients are positive, so that no argument needs
clamping.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import sqrt
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.binding import Call

__all__ = ["erf_steps", "gelu_steps", "polynomial"]

# h(x) / x in powers of x squared.  P is good to 7e-8, x P(x) to one rounding of float32.
_LOGIT: Final = (
    1.59576938,
    7.26672907e-02,
    -6.56569100e-05,
    -1.10610667e-04,
    7.95205573e-06,
    -2.67586494e-07,
    3.62421151e-09,
)
# The same to 2e-8: together with float32 rounding and tanh, erf is good to 1.2e-7.
_FINE_LOGIT: Final = (
    1.59576917,
    7.26703994e-02,
    -7.19827320e-05,
    -1.06058322e-04,
    6.41922082e-06,
    3.79292416e-09,
    -2.27770440e-08,
    1.39822176e-09,
    -3.72118967e-11,
    3.83060672e-13,
)
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

    ``out`` must be other memory than ``x``.
    """
    constants = [np.asarray(value, x.dtype) for value in coefficients]
    yield partial(np.multiply, x, constants[-1], out=out)
    for constant in reversed(constants[1:-1]):
        yield partial(np.add, out, constant, out=out)
        yield partial(np.multiply, out, x, out=out)
    yield partial(np.add, out, constants[0], out=out)


def erf_steps(out: Array, x: Array, square: Array, h: Array) -> Iterator[Call]:
    """Calls for the error function of ``x``; ``square`` and ``h`` are temporaries.

    float32: absolute error below 1.5e-7, relative error below 3e-7.  float64: full accuracy.
    """
    if x.dtype == np.float64:
        yield partial(_erf64, x, out)
        return
    scaled = [c * sqrt(0.5) * 2**power for power, c in enumerate(_FINE_LOGIT)]
    yield partial(np.square, x, out=square)
    yield from polynomial(scaled, square, h)
    yield partial(np.multiply, h, x, out=h)
    yield partial(np.tanh, h, out=out)


def gelu_steps(out: Array, x: Array, square: Array, h: Array) -> Iterator[Call]:
    """Calls for x P(x), with P the normal distribution function; two temporaries as above."""
    if x.dtype == np.float64:
        yield partial(np.multiply, x, np.asarray(sqrt(0.5)), out=square)
        yield partial(_erf64, square, h)
        yield partial(np.add, h, np.asarray(1.0), out=h)
        yield partial(np.multiply, h, np.asarray(0.5), out=h)
        yield partial(np.multiply, x, h, out=out)
        return
    yield partial(np.square, x, out=square)
    yield from polynomial([-c for c in _LOGIT], square, h)
    yield partial(np.multiply, h, x, out=h)
    yield partial(np.exp, h, out=h)
    yield partial(np.add, h, np.asarray(1, x.dtype), out=h)
    yield partial(np.divide, x, h, out=out)


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
