"""One step of each recurrent layer, as calls on fixed buffers.

Buffers are [gates, directions, batch, hidden], gates in ONNX's order: one gate, or a few that
follow each other, are contiguous, which halves the time of a call on a small array.
Equations: ONNX RNN-14, LSTM-14, GRU-14.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.binding import Call, Scratch

__all__ = ["Cell", "CellParts", "Function", "Stage", "gru", "lstm", "rnn"]


@dataclass(frozen=True, slots=True)
class Function:
    """An activation function, by its ONNX name in lower case."""

    name: str
    alpha: float
    beta: float

    @property
    def gain(self) -> float:
        """What the function wants its argument multiplied by: sigmoid starts from x / 2."""
        return 0.5 if self.name == "sigmoid" else 1.0

    def calls(self, x: Array, spare: Array, *, is_scaled: bool = True) -> list[Call]:
        """Apply the function to ``x`` in place; ``spare`` is a temporary of the same shape.

        ``is_scaled``: ``x`` is multiplied by `gain` already.
        """
        calls: list[Call] = []
        if self.gain != 1.0 and not is_scaled:
            calls.append(partial(np.multiply, x, _scalar(x, self.gain), out=x))
        alpha, beta = _scalar(x, self.alpha), _scalar(x, self.beta)
        return calls + _FUNCTIONS[self.name](x, spare, alpha, beta)


def _scalar(like: Array, value: float) -> Array:
    """A 0-d array: numpy's ufuncs take it faster than a scalar."""
    return np.array(value, like.dtype)


def _affine(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    del spare
    return [partial(np.multiply, x, alpha, out=x), partial(np.add, x, beta, out=x)]


def _elu(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    del beta
    zero = _scalar(x, 0.0)
    return [
        partial(np.minimum, x, zero, out=spare),
        partial(np.expm1, spare, out=spare),
        partial(np.multiply, spare, alpha, out=spare),
        partial(np.maximum, x, zero, out=x),
        partial(np.add, x, spare, out=x),
    ]


def _hard_sigmoid(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    return [*_affine(x, spare, alpha, beta), *_limited(x, 0.0, 1.0)]


def _limited(x: Array, low: float, high: float) -> list[Call]:
    return [
        partial(np.maximum, x, _scalar(x, low), out=x),
        partial(np.minimum, x, _scalar(x, high), out=x),
    ]


def _leaky_relu(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    del beta
    zero = _scalar(x, 0.0)
    return [
        partial(np.minimum, x, zero, out=spare),
        partial(np.multiply, spare, alpha, out=spare),
        partial(np.maximum, x, zero, out=x),
        partial(np.add, x, spare, out=x),
    ]


def _relu(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    del spare, alpha, beta
    return [partial(np.maximum, x, _scalar(x, 0.0), out=x)]


def _scaled_tanh(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    del spare
    return [
        partial(np.multiply, x, beta, out=x),
        partial(np.tanh, x, out=x),
        partial(np.multiply, x, alpha, out=x),
    ]


def _sigmoid(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    """Of 2 x: see `Function.gain`."""
    del alpha, beta
    half = _scalar(x, 0.5)
    return [partial(np.tanh, x, out=x), *_affine(x, spare, half, half)]


def _softplus(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    del spare, alpha, beta
    return [partial(np.logaddexp, x, _scalar(x, 0.0), out=x)]


def _softsign(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    del alpha, beta
    return [
        partial(np.absolute, x, out=spare),
        partial(np.add, spare, _scalar(x, 1.0), out=spare),
        partial(np.divide, x, spare, out=x),
    ]


def _tanh(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    del spare, alpha, beta
    return [partial(np.tanh, x, out=x)]


def _thresholded_relu(x: Array, spare: Array, alpha: Array, beta: Array) -> list[Call]:
    del beta
    return [
        partial(np.greater, x, alpha, out=spare, casting="unsafe"),
        partial(np.multiply, x, spare, out=x),
    ]


_FUNCTIONS: Final[dict[str, Callable[[Array, Array, Array, Array], list[Call]]]] = {
    "affine": _affine,
    "elu": _elu,
    "hardsigmoid": _hard_sigmoid,
    "leakyrelu": _leaky_relu,
    "relu": _relu,
    "scaledtanh": _scaled_tanh,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "softsign": _softsign,
    "tanh": _tanh,
    "thresholdedrelu": _thresholded_relu,
}


@dataclass(frozen=True, slots=True)
class CellParts:
    """What a cell is built from; all weights are multiplied by the gains of their functions.

    Attributes:
        h, c: The state [n, B, H], updated in place (``c`` is used by LSTM only).
        recurrent: R of each gate, transposed: [n, G, H, H].  For a batch of one, the memory is in
            R's own order.
        functions: Activation functions in ONNX's order (f, g, h).
        clip: Bound of the functions' arguments; 0: none.
        recurrent_bias: GRU with linear_before_reset: the bias [n, 1, H] of the last gate's
            recurrent product.
        peepholes: LSTM: [n, 3, H], or ``None``.
        linear_before_reset, input_forget: ONNX attributes.
        scratch: Where buffers are taken from.
    """

    h: Array
    c: Array
    recurrent: Array
    functions: Sequence[Function]
    clip: float
    recurrent_bias: Array | None
    peepholes: Array | None
    linear_before_reset: bool
    input_forget: bool
    scratch: Scratch

    def buffer(self) -> Array:
        """Uninitialised memory like one gate: [n, B, H]."""
        return self.scratch.take(self.h.shape, self.h.dtype)

    def buffers(self, gates: int) -> Array:
        """Uninitialised memory for some gates: [gates, n, B, H]."""
        return self.scratch.take((gates, *self.h.shape), self.h.dtype)

    def product(self, state: Array, first: int, out: Array) -> Call:
        """Multiply ``state`` with R of the gates from ``first`` on, as many as ``out`` has."""
        weights = self.recurrent[:, first : first + len(out)]
        if state.size == state.shape[2]:
            matrix = weights[0].swapaxes(1, 2).reshape(-1, state.size)
            return partial(np.dot, matrix, state.reshape(-1), out=out.reshape(-1))
        return partial(np.matmul, state[:, None], weights, out=out.swapaxes(0, 1))

    def activated(self, index: int, x: Array, spare: Array) -> list[Call]:
        """Clip ``x``, which came through weights, and apply a function to it in place."""
        function = self.functions[index]
        bound = self.clip * function.gain
        limit = _limited(x, -bound, bound) if bound else []
        return limit + function.calls(x, spare)


@dataclass(frozen=True, slots=True)
class Stage:
    """Add the step's share of X W^T to ``target``, the gates from ``first`` on; then make calls."""

    target: Array
    first: int
    after: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """One step: ``start``, then the stages in order.  It leaves the new state in place."""

    start: Call
    stages: tuple[Stage, ...]


def rnn(parts: CellParts) -> Cell:
    """RNN: h = f(x + R h)."""
    gate = parts.buffers(1)
    calls = parts.activated(0, gate[0], parts.buffer())
    calls.append(partial(np.copyto, parts.h, gate[0]))
    return Cell(parts.product(parts.h, 0, gate), (Stage(gate, 0, tuple(calls)),))


def lstm(parts: CellParts) -> Cell:
    """LSTM: i, o, f = f(x + R h + P c); c = f * c + i * g(x + R h); h = o * h(c)."""
    gates, product = parts.buffers(4), parts.buffer()
    i, o, f, g = gates
    h, c = parts.h, parts.c
    is_plain = parts.peepholes is None and not parts.clip and not parts.input_forget
    output: list[Call] = []
    if is_plain and [function.name for function in parts.functions[:2]] == ["sigmoid", "tanh"]:
        half = _scalar(h, 0.5)
        calls = _tanh(gates, gates, half, half) + _affine(gates[:3], gates, half, half)
    else:
        calls = _lstm_gates(parts, gates)
        output = _peep(parts, 1, o, product) + parts.activated(0, o, product)
    calls += [
        partial(np.multiply, f, c, out=c),
        partial(np.multiply, i, g, out=product),
        partial(np.add, c, product, out=c),
        *output,
        *_state_output(parts, product),
        partial(np.multiply, o, product, out=h),
    ]
    return Cell(parts.product(h, 0, gates), (Stage(gates, 0, tuple(calls)),))


def _state_output(parts: CellParts, out: Array) -> list[Call]:
    """Calls for ``out = h(c)``."""
    function = parts.functions[2]
    if function.name == "tanh":
        return [partial(np.tanh, parts.c, out=out)]
    copy = partial(np.copyto, out, parts.c)
    return [copy, *function.calls(out, parts.buffer(), is_scaled=False)]


def _lstm_gates(parts: CellParts, gates: Array) -> list[Call]:
    """Gates i and f (with peepholes) and g of LSTM, in place; o waits for the new state."""
    i, _, f, g = gates
    spare = parts.buffer()
    calls = _peep(parts, 0, i, spare) + parts.activated(0, i, spare)
    if parts.input_forget:
        calls.append(partial(np.subtract, _scalar(f, 1.0), i, out=f))
    else:
        calls += _peep(parts, 2, f, spare) + parts.activated(0, f, spare)
    return calls + parts.activated(1, g, spare)


def _peep(parts: CellParts, gate: int, x: Array, spare: Array) -> list[Call]:
    """Calls for ``x += P c``."""
    if parts.peepholes is None:
        return []
    weights = parts.peepholes[:, None, gate]
    return [partial(np.multiply, weights, parts.c, out=spare), partial(np.add, x, spare, out=x)]


def gru(parts: CellParts) -> Cell:
    """GRU: z, r = f(x + R h); n = g(x + R (r * h)) or g(x + r * (R h)); h = n + z * (h - n)."""
    gates, spare, h = parts.buffers(3), parts.buffers(2), parts.h
    z, r, new = gates
    if parts.linear_before_reset:
        start = parts.product(h, 0, gates)
        reset: list[Call] = [partial(np.multiply, new, r, out=new)]
        if parts.recurrent_bias is not None:
            reset.insert(0, partial(np.add, new, parts.recurrent_bias, out=new))
    else:
        kept = parts.buffer()
        start = parts.product(h, 0, gates[:2])
        reset = [partial(np.multiply, r, h, out=kept), parts.product(kept, 2, gates[2:])]
    update: list[Call] = [
        *parts.activated(1, new, spare[0]),
        partial(np.subtract, h, new, out=h),
        partial(np.multiply, h, z, out=h),
        partial(np.add, h, new, out=h),
    ]
    first = Stage(gates[:2], 0, (*parts.activated(0, gates[:2], spare), *reset))
    return Cell(start, (first, Stage(gates[2:], 2, tuple(update))))
