"""One step of each recurrent layer, as calls on fixed buffers.

Arrays are [directions, batch, ...].  Gates lie side by side in the last axis, in ONNX's order.
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
        recurrent: R, transposed: [n, H, G * H].
        functions: Activation functions in ONNX's order (f, g, h).
        clip: Bound of the functions' arguments; 0: none.
        recurrent_bias: GRU with linear_before_reset: the bias [n, 1, H] of the last gate's
            recurrent product.
        peepholes: LSTM: [n, 1, 3 * H], or ``None``.
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

    @property
    def hidden(self) -> int:
        """H."""
        return int(self.h.shape[2])

    def buffer(self, gates: int = 1) -> Array:
        """Uninitialised memory for some gates."""
        return self.scratch.take((*self.h.shape[:2], gates * self.hidden), self.h.dtype)

    def gates(self, first: int, last: int) -> slice:
        """Columns of the gates from ``first`` up to ``last``."""
        return slice(first * self.hidden, last * self.hidden)

    def activated(self, index: int, x: Array, spare: Array) -> list[Call]:
        """Clip ``x``, which came through weights, and apply a function to it in place."""
        function = self.functions[index]
        bound = self.clip * function.gain
        limit = _limited(x, -bound, bound) if bound else []
        return limit + function.calls(x, spare)


@dataclass(frozen=True, slots=True)
class Stage:
    """Add some columns of the step's share of X W^T to ``target``, then make calls."""

    target: Array
    columns: slice
    after: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """One step: ``first``, then the stages in order.  It leaves the new state in place."""

    first: tuple[Call, ...]
    stages: tuple[Stage, ...]


def rnn(parts: CellParts) -> Cell:
    """RNN: h = f(x + R h)."""
    new = parts.buffer()
    after: list[Call] = [
        *parts.activated(0, new, parts.buffer()),
        partial(np.copyto, parts.h, new),
    ]
    product = partial(np.matmul, parts.h, parts.recurrent, out=new)
    return Cell((product,), (Stage(new, slice(None), tuple(after)),))


def lstm(parts: CellParts) -> Cell:
    """LSTM: i, o, f = f(x + R h + P c); c = f * c + i * g(x + R h); h = o * h(c)."""
    all_gates, spare, product = parts.buffer(4), parts.buffer(4), parts.buffer()
    i, o, f, g = (all_gates[..., parts.gates(n, n + 1)] for n in range(4))
    h, c = parts.h, parts.c
    is_plain = parts.peepholes is None and not parts.clip and not parts.input_forget
    names = [function.name for function in parts.functions[:2]]
    if is_plain and names == ["sigmoid", "tanh"]:
        three, half = all_gates[..., parts.gates(0, 3)], _scalar(h, 0.5)
        calls: list[Call] = [partial(np.tanh, all_gates, out=all_gates)]
        calls += _affine(three, spare, half, half)
        output: list[Call] = []
    else:
        calls = _lstm_gates(parts, all_gates, spare)
        output = _peep(parts, 1, o, c, product) + parts.activated(0, o, spare[..., : parts.hidden])
    calls += [
        partial(np.multiply, f, c, out=c),
        partial(np.multiply, i, g, out=product),
        partial(np.add, c, product, out=c),
        *output,
        *_state_output(parts, product),
        partial(np.multiply, o, product, out=h),
    ]
    recur = partial(np.matmul, h, parts.recurrent, out=all_gates)
    return Cell((recur,), (Stage(all_gates, slice(None), tuple(calls)),))


def _state_output(parts: CellParts, out: Array) -> list[Call]:
    """Calls for ``out = h(c)``."""
    function = parts.functions[2]
    if function.name == "tanh":
        return [partial(np.tanh, parts.c, out=out)]
    spare = parts.buffer()
    return [partial(np.copyto, out, parts.c), *function.calls(out, spare, is_scaled=False)]


def _lstm_gates(parts: CellParts, gates: Array, spare: Array) -> list[Call]:
    """Gates i and f (with peepholes) and g of LSTM, in place; o waits for the new state."""
    i, f, g = (gates[..., parts.gates(n, n + 1)] for n in (0, 2, 3))
    one = spare[..., : parts.hidden]
    calls = _peep(parts, 0, i, parts.c, one) + parts.activated(0, i, one)
    if parts.input_forget:
        calls.append(partial(np.subtract, _scalar(f, 1.0), i, out=f))
    else:
        calls += _peep(parts, 2, f, parts.c, one) + parts.activated(0, f, one)
    return calls + parts.activated(1, g, one)


def _peep(parts: CellParts, gate: int, x: Array, c: Array, spare: Array) -> list[Call]:
    """Calls for ``x += P c``."""
    if parts.peepholes is None:
        return []
    weights = parts.peepholes[..., parts.gates(gate, gate + 1)]
    return [partial(np.multiply, weights, c, out=spare), partial(np.add, x, spare, out=x)]


def gru(parts: CellParts) -> Cell:
    """GRU: z, r = f(x + R h); n = g(x + R (r * h)) or g(x + r * (R h)); h = n + z * (h - n)."""
    products, spare = parts.buffer(3), parts.buffer(2)
    both, new = products[..., parts.gates(0, 2)], products[..., parts.gates(2, 3)]
    z, r = both[..., parts.gates(0, 1)], both[..., parts.gates(1, 2)]
    h, weights = parts.h, parts.recurrent
    reset: list[Call]
    if parts.linear_before_reset:
        recur = partial(np.matmul, h, weights, out=products)
        reset = [partial(np.multiply, new, r, out=new)]
        if parts.recurrent_bias is not None:
            reset.insert(0, partial(np.add, new, parts.recurrent_bias, out=new))
    else:
        kept = parts.buffer()
        recur = partial(np.matmul, h, weights[..., parts.gates(0, 2)], out=both)
        reset = [
            partial(np.multiply, r, h, out=kept),
            partial(np.matmul, kept, weights[..., parts.gates(2, 3)], out=new),
        ]
    update: list[Call] = [
        *parts.activated(1, new, spare[..., : parts.hidden]),
        partial(np.subtract, h, new, out=h),
        partial(np.multiply, h, z, out=h),
        partial(np.add, h, new, out=h),
    ]
    return Cell(
        (recur,),
        (
            Stage(both, parts.gates(0, 2), (*parts.activated(0, both, spare), *reset)),
            Stage(new, parts.gates(2, 3), tuple(update)),
        ),
    )
