"""One step of each recurrent layer, as calls on fixed buffers.

Buffers are [gates, directions, batch, hidden], gates in ONNX's order: one gate, or a few that
follow each other, are contiguous, which halves the time of a call on a small array.
Equations: ONNX RNN-14, LSTM-14, GRU-14.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Call, Scratch
from popc_runtime.kernels.parts.rnn_functions import Function, affine, limited, scalar, tanh

__all__ = ["Cell", "CellParts", "CellStage", "gru", "lstm", "rnn"]


@dataclass(frozen=True, slots=True)
class CellParts:
    """The parts of a cell; all weights are multiplied by the gains of their functions.

    Attributes:
        states: The state before the step, each [n, B, H]: h, for LSTM also c.
        results: The state after it; the same arrays if the state is updated in place.
        kept: Where the cell leaves what the backward pass needs, [K, n, B, H]; see each cell.
        recurrent: R of each gate, transposed: [n, G, H, H].  For a batch of one, the memory is in
            R's own order.
        functions: Activation functions in ONNX's order (f, g, h).
        clip: Bound of the functions' arguments; 0: none.
        recurrent_bias: GRU with linear_before_reset: the bias [n, 1, H] of the last gate's
            recurrent product.
        peepholes: LSTM: [n, 3, H], or ``None``.
        attention: GRU: what the update gate is multiplied by in this step, [n, B, 1], or ``None``.
        linear_before_reset, input_forget: ONNX attributes.
        scratch: Where buffers are taken from.
        rounded: What is multiplied with R in place of a state, if it is not the state.
    """

    states: Sequence[Array]
    results: Sequence[Array]
    kept: Array
    recurrent: Array
    functions: Sequence[Function]
    clip: float
    recurrent_bias: Array | None
    peepholes: Array | None
    attention: Array | None
    linear_before_reset: bool
    input_forget: bool
    scratch: Scratch
    rounded: Callable[[Array], Array] | None = None

    def buffer(self) -> Array:
        """Uninitialised memory like one gate: [n, B, H]."""
        h = self.states[0]
        return self.scratch.take(h.shape, h.dtype)

    def buffers(self, gates: int) -> Array:
        """Uninitialised memory for some gates: [gates, n, B, H]."""
        h = self.states[0]
        return self.scratch.take((gates, *h.shape), h.dtype)

    def product(self, state: Array, first: int, out: Array) -> Call:
        """Multiply ``state`` with R of the gates from ``first`` on, as many as ``out`` has."""
        if self.rounded is None:
            return self._product(state, first, out)
        rounded, round_rows = self.buffer(), self.rounded
        multiply = self._product(rounded, first, out)

        def multiply_rounded() -> None:
            np.copyto(rounded, round_rows(state))
            multiply()

        return multiply_rounded

    def _product(self, state: Array, first: int, out: Array) -> Call:
        weights = self.recurrent[:, first : first + len(out)]
        if state.size == state.shape[2] and out.flags.c_contiguous:
            matrix = weights[0].swapaxes(1, 2).reshape(-1, state.size)
            return partial(np.dot, matrix, state.reshape(-1), out=out.reshape(-1))
        return partial(np.matmul, state[:, None], weights, out=out.swapaxes(0, 1))

    def activated(self, index: int, x: Array, spare: Array) -> list[Call]:
        """Clip ``x``, which came through weights, and apply a function to it in place."""
        function = self.functions[index]
        bound = self.clip * function.gain
        limit = limited(x, -bound, bound) if bound else []
        return limit + function.calls(x, spare)


@dataclass(frozen=True, slots=True)
class CellStage:
    """Add the step's share of X W^T to ``target``, the gates from ``first`` on; then make calls."""

    target: Array
    first: int
    after: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """One step: ``start``, then the stages in order."""

    start: Call
    stages: tuple[CellStage, ...]


def rnn(parts: CellParts) -> Cell:
    """RNN: h = f(x + R h).  Nothing is kept: the function's value is the state."""
    (h,), (result,) = parts.states, parts.results
    gate = parts.buffers(1) if h is result else result[None]
    calls = parts.activated(0, gate[0], parts.buffer())
    if h is result:
        calls.append(partial(np.copyto, h, gate[0]))
    return Cell(parts.product(h, 0, gate), (CellStage(gate, 0, tuple(calls)),))


def lstm(parts: CellParts) -> Cell:
    """LSTM: i, o, f = f(x + R h + P c); c = f * c + i * g(x + R h); h = o * h(c).

    Kept are i, o, f, g(...) and h(c).
    """
    (h, c), (new_h, new_c) = parts.states, parts.results
    gates, product = parts.kept[:4], parts.kept[4]
    i, o, f, g = gates
    is_plain = parts.peepholes is None and not parts.clip and not parts.input_forget
    output: list[Call] = []
    if is_plain and [function.name for function in parts.functions[:2]] == ["sigmoid", "tanh"]:
        half = scalar(h, 0.5)
        calls = tanh(gates, gates, half, half) + affine(gates[:3], gates, half, half)
    else:
        calls = _lstm_gates(parts, gates)
        output = _peep(parts, 1, o, new_c, product) + parts.activated(0, o, product)
    calls += [
        partial(np.multiply, f, c, out=new_c),
        partial(np.multiply, i, g, out=product),
        partial(np.add, new_c, product, out=new_c),
        *output,
        *_state_output(parts, new_c, product),
        partial(np.multiply, o, product, out=new_h),
    ]
    return Cell(parts.product(h, 0, gates), (CellStage(gates, 0, tuple(calls)),))


def _state_output(parts: CellParts, c: Array, out: Array) -> list[Call]:
    """Calls for ``out = h(c)``."""
    function = parts.functions[2]
    if function.name == "tanh":
        return [partial(np.tanh, c, out=out)]
    copy = partial(np.copyto, out, c)
    return [copy, *function.calls(out, parts.buffer(), is_scaled=False)]


def _lstm_gates(parts: CellParts, gates: Array) -> list[Call]:
    """Gates i and f (with peepholes) and g of LSTM, in place; o waits for the new state."""
    i, _, f, g = gates
    spare, c = parts.buffer(), parts.states[1]
    calls = _peep(parts, 0, i, c, spare) + parts.activated(0, i, spare)
    if parts.input_forget:
        calls.append(partial(np.subtract, scalar(f, 1.0), i, out=f))
    else:
        calls += _peep(parts, 2, f, c, spare) + parts.activated(0, f, spare)
    return calls + parts.activated(1, g, spare)


def _peep(parts: CellParts, gate: int, x: Array, c: Array, spare: Array) -> list[Call]:
    """Calls for ``x += P c``."""
    if parts.peepholes is None:
        return []
    weights = parts.peepholes[:, None, gate]
    return [partial(np.multiply, weights, c, out=spare), partial(np.add, x, spare, out=x)]


def gru(parts: CellParts) -> Cell:
    """GRU: z, r = f(x + R h); n = g(x + R (r * h)) or g(x + r * (R h)); h = n + z * (h - n).

    Kept are z and r, in the second form R h, and n.
    """
    gates, spare = parts.kept, parts.buffers(2)
    (h,), (result,) = parts.states, parts.results
    z, r, new = gates[0], gates[1], gates[-1]
    if parts.linear_before_reset:
        product = gates[2]
        start = parts.product(h, 0, gates[:3])
        reset: list[Call] = [partial(np.multiply, product, r, out=new)]
        if parts.recurrent_bias is not None:
            reset.insert(0, partial(np.add, product, parts.recurrent_bias, out=product))
    else:
        remembered = parts.buffer()
        start = parts.product(h, 0, gates[:2])
        reset = [
            partial(np.multiply, r, h, out=remembered),
            parts.product(remembered, 2, new[None]),
        ]
    update: list[Call] = parts.activated(1, new, spare[0])
    if parts.attention is not None:
        update.append(partial(np.multiply, z, parts.attention, out=spare[0]))
        z = spare[0]
    update += [
        partial(np.subtract, h, new, out=result),
        partial(np.multiply, result, z, out=result),
        partial(np.add, result, new, out=result),
    ]
    first = CellStage(gates[:2], 0, (*parts.activated(0, gates[:2], spare), *reset))
    return Cell(start, (first, CellStage(new[None], 2, tuple(update))))
