"""Activation functions of recurrent layers, as calls on fixed buffers, and their derivatives.

A derivative is computed from the function's value, which training keeps; the argument is gone.
Where the argument was clipped the derivative is zero: the value is the one at the bound there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Call
from popc_runtime.kernels.core.negation import negative

__all__ = ["Function", "affine", "limited", "scalar", "tanh"]


@dataclass(frozen=True, slots=True)
class Function:
    """An activation function, by its ONNX name in lower case, or "softmax" (of each row)."""

    name: str
    alpha: float
    beta: float

    @property
    def gain(self) -> float:
        """The factor that the function wants on its argument: sigmoid starts from x / 2."""
        return 0.5 if self.name == "sigmoid" else 1.0

    def calls(self, x: Array, spare: Array, *, is_scaled: bool = True) -> list[Call]:
        """Apply the function to ``x`` in place; ``spare`` is a temporary of the same shape.

        ``is_scaled``: ``x`` is multiplied by `gain` already.
        """
        calls: list[Call] = []
        if self.gain != 1.0 and not is_scaled:
            calls.append(partial(np.multiply, x, scalar(x, self.gain), out=x))
        alpha, beta = scalar(x, self.alpha), scalar(x, self.beta)
        return calls + _FUNCTIONS[self.name](x, spare, alpha, beta)

    def backward(
        self, y: Array, grad: Array, out: Array, spare: Array, *, clip: float = 0.0
    ) -> list[Call]:
        """Calls for ``out``, the gradient of the argument, given the value ``y`` and its gradient.

        ``out`` may be ``grad``; ``spare`` is a temporary like ``y``.  ``clip``: the bound of the
        argument's absolute value, 0 if there is none.
        """
        if self.name == "softmax":
            return _softmax_backward(y, grad, out, spare)
        calls = _SLOPES[self.name](y, spare, self.alpha, self.beta)
        for bound in (-clip, clip) if clip else ():
            calls.append(partial(_clear_equal, spare, y, self._value(y, bound)))
        calls.append(partial(np.multiply, grad, spare, out=out))
        return calls

    def _value(self, like: Array, argument: float) -> Array:
        """The function's value at one point, as the forward pass computes it."""
        x = np.full(1, argument, like.dtype)
        for call in self.calls(x, np.empty_like(x), is_scaled=False):
            call()
        return x.reshape(())


def scalar(like: Array, value: float) -> Array:
    """A 0-d array: numpy's ufuncs take it faster than a scalar."""
    return np.array(value, like.dtype)


def _clear_equal(x: Array, y: Array, value: Array) -> None:
    """Set ``x`` to zero where ``y`` is ``value``."""
    np.copyto(x, 0, where=np.equal(y, value))


# -- functions: (x, spare, alpha, beta) -> calls that replace x ------------------------------------


def affine(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    """``alpha * x + beta``."""
    del spare
    return [partial(np.multiply, x, alpha, out=x), partial(np.add, x, beta, out=x)]


def _elu(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    del beta
    zero = scalar(x, 0.0)
    return [
        partial(np.minimum, x, zero, out=spare),
        partial(np.expm1, spare, out=spare),
        partial(np.multiply, spare, alpha, out=spare),
        partial(np.maximum, x, zero, out=x),
        partial(np.add, x, spare, out=x),
    ]


def _hard_sigmoid(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    return [*affine(x, spare, alpha, beta), *limited(x, 0.0, 1.0)]


def limited(x: Array, low: float, high: float) -> list[Call]:
    """``x`` within bounds."""
    return [
        partial(np.maximum, x, scalar(x, low), out=x),
        partial(np.minimum, x, scalar(x, high), out=x),
    ]


def _leaky_relu(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    del beta
    zero = scalar(x, 0.0)
    return [
        partial(np.minimum, x, zero, out=spare),
        partial(np.multiply, spare, alpha, out=spare),
        partial(np.maximum, x, zero, out=x),
        partial(np.add, x, spare, out=x),
    ]


def _relu(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    del spare, alpha, beta
    return [partial(np.maximum, x, scalar(x, 0.0), out=x)]


def _scaled_tanh(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    del spare
    return [
        partial(np.multiply, x, beta, out=x),
        partial(np.tanh, x, out=x),
        partial(np.multiply, x, alpha, out=x),
    ]


def _sigmoid(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    """The sigmoid of 2 x: see `Function.gain`."""
    del alpha, beta
    half = scalar(x, 0.5)
    return [partial(np.tanh, x, out=x), *affine(x, spare, half, half)]


def _softmax(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    del alpha, beta
    row = spare[..., :1]
    return [
        partial(np.max, x, axis=-1, keepdims=True, out=row),
        partial(np.subtract, x, row, out=x),
        partial(np.exp, x, out=x),
        partial(np.sum, x, axis=-1, keepdims=True, out=row),
        partial(np.divide, x, row, out=x),
    ]


def _softplus(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    del spare, alpha, beta
    return [partial(np.logaddexp, x, scalar(x, 0.0), out=x)]


def _softsign(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    del alpha, beta
    return [
        partial(np.absolute, x, out=spare),
        partial(np.add, spare, scalar(x, 1.0), out=spare),
        partial(np.divide, x, spare, out=x),
    ]


def tanh(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    """The hyperbolic tangent."""
    del spare, alpha, beta
    return [partial(np.tanh, x, out=x)]


def _thresholded_relu(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    del beta
    return [
        partial(np.greater, x, alpha, out=spare, casting="unsafe"),
        partial(np.multiply, x, spare, out=x),
    ]


_FUNCTIONS: Final[dict[str, Callable[[Array, Array, Array, Array], list[Call]]]] = {
    "affine": affine,
    "elu": _elu,
    "hardsigmoid": _hard_sigmoid,
    "leakyrelu": _leaky_relu,
    "relu": _relu,
    "scaledtanh": _scaled_tanh,
    "sigmoid": _sigmoid,
    "softmax": _softmax,
    "softplus": _softplus,
    "softsign": _softsign,
    "tanh": tanh,
    "thresholdedrelu": _thresholded_relu,
}


# -- derivatives: (y, out, alpha, beta) -> calls that put f'(x) into out, given y = f(x) -----------


def _affine_slope(y: Array, out: Array, alpha: float, beta: float) -> list[Call]:
    del y, beta
    return [partial(out.fill, alpha)]


def _elu_slope(y: Array, out: Array, alpha: float, beta: float) -> list[Call]:
    """alpha * exp(x) = y + alpha below zero."""
    del beta
    return [
        partial(np.add, y, scalar(y, alpha), out=out),
        partial(_set_where_positive, out, y, 1.0),
    ]


def _set_where_positive(x: Array, y: Array, value: float) -> None:
    np.copyto(x, value, where=np.greater(y, 0))


def _hard_sigmoid_slope(y: Array, out: Array, alpha: float, beta: float) -> list[Call]:
    """y - y * y is zero at both ends."""
    del beta
    return [
        *_sigmoid_slope(y, out, 0.0, 0.0),
        partial(np.greater, out, scalar(y, 0.0), out=out, casting="unsafe"),
        partial(np.multiply, out, scalar(y, alpha), out=out),
    ]


def _leaky_relu_slope(y: Array, out: Array, alpha: float, beta: float) -> list[Call]:
    del beta
    return [partial(out.fill, alpha), partial(_set_where_positive, out, y, 1.0)]


def _relu_slope(y: Array, out: Array, alpha: float, beta: float) -> list[Call]:
    del alpha, beta
    return [partial(np.greater, y, scalar(y, 0.0), out=out, casting="unsafe")]


def _scaled_tanh_slope(y: Array, out: Array, alpha: float, beta: float) -> list[Call]:
    """beta * (alpha - y * y / alpha)."""
    factor = -beta / alpha if alpha else 0.0
    return [
        partial(np.multiply, y, y, out=out),
        *affine(out, out, scalar(y, factor), scalar(y, alpha * beta)),
    ]


def _sigmoid_slope(y: Array, out: Array, alpha: float, beta: float) -> list[Call]:
    del alpha, beta
    return [partial(np.multiply, y, y, out=out), partial(np.subtract, y, out, out=out)]


def _softplus_slope(y: Array, out: Array, alpha: float, beta: float) -> list[Call]:
    """1 - exp(-y)."""
    del alpha, beta
    return [
        partial(negative, y, out=out),
        partial(np.expm1, out, out=out),
        partial(negative, out, out=out),
    ]


def _softsign_slope(y: Array, out: Array, alpha: float, beta: float) -> list[Call]:
    """(1 - abs(y)) squared."""
    del alpha, beta
    return [
        partial(np.absolute, y, out=out),
        partial(np.subtract, scalar(y, 1.0), out, out=out),
        partial(np.multiply, out, out, out=out),
    ]


def _tanh_slope(y: Array, out: Array, alpha: float, beta: float) -> list[Call]:
    del alpha, beta
    return [
        partial(np.multiply, y, y, out=out),
        partial(np.subtract, scalar(y, 1.0), out, out=out),
    ]


def _thresholded_relu_slope(y: Array, out: Array, alpha: float, beta: float) -> list[Call]:
    del alpha, beta
    return [partial(np.not_equal, y, scalar(y, 0.0), out=out, casting="unsafe")]


_SLOPES: Final[dict[str, Callable[[Array, Array, float, float], list[Call]]]] = {
    "affine": _affine_slope,
    "elu": _elu_slope,
    "hardsigmoid": _hard_sigmoid_slope,
    "leakyrelu": _leaky_relu_slope,
    "relu": _relu_slope,
    "scaledtanh": _scaled_tanh_slope,
    "sigmoid": _sigmoid_slope,
    "softplus": _softplus_slope,
    "softsign": _softsign_slope,
    "tanh": _tanh_slope,
    "thresholdedrelu": _thresholded_relu_slope,
}


def _softmax_backward(y: Array, grad: Array, out: Array, spare: Array) -> list[Call]:
    """y * (g - the row's sum of g * y)."""
    row = np.empty((*y.shape[:-1], 1), y.dtype)
    return [
        partial(np.multiply, grad, y, out=spare),
        partial(np.sum, spare, axis=-1, keepdims=True, out=row),
        partial(np.subtract, grad, row, out=spare),
        partial(np.multiply, spare, y, out=out),
    ]
