"""One step of each recurrent layer backwards, as calls on fixed buffers.

A step is given the gradients of the state after it and leaves those of the state before it in
their place, and the gradients of the gates' arguments.  The equations are those of `rnn_cells`,
differentiated; buffers lie as they do there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Call
from popc_runtime.kernels.parts.rnn_functions import Function

__all__ = ["GradParts", "Temporaries", "gru_backward", "lstm_backward", "rnn_backward"]


@dataclass(frozen=True, slots=True)
class Temporaries:
    """Memory that every step uses again.

    Attributes:
        outer: Gradients of the gates, [G, n, B, H].
        spare: As large.
        direct: GRU: the part of the state's gradient that does not come through weights.
        saved: For sequences that have ended: the gradients of the states, one array each.
    """

    outer: Array
    spare: Array
    direct: Array
    saved: Sequence[Array]


@dataclass(frozen=True, slots=True)
class GradParts:
    """The parts of a step; n directions run together.

    Attributes:
        grads: The gradients of the state, each [n, B, H], updated in place.
        before, after: The states before and after the step, each [n, B, H].
        gates: What the forward pass kept of the step, [K, n, B, H].
        rows: Result: the gradients of the gates' arguments, [n, B, columns].  The columns are
            gates in ONNX's order; for a GRU with linear_before_reset n, z, r and R h.
        remembered: Result, GRU without linear_before_reset: r * h.
        recurrent: R [n, G * H, H].
        functions: Activation functions in ONNX's order (f, g, h).
        clip: Bound of the functions' arguments; 0: none.
        peepholes: LSTM: [n, 3, H], or ``None``.
        attention: GRU: what the update gate was multiplied by, [n, B, 1], or ``None``.
        attention_grad: Result: minus the gradient of the attention, [n, B, 1], or ``None``.
        ended: Which sequences end before this step, [n, B, 1], or ``None``.
        linear_before_reset, input_forget: ONNX attributes.
        temporaries: Where to work.
    """

    grads: Sequence[Array]
    before: Sequence[Array]
    after: Sequence[Array]
    gates: Array
    rows: Array
    remembered: Array | None
    recurrent: Array
    functions: Sequence[Function]
    clip: float
    peepholes: Array | None
    attention: Array | None
    attention_grad: Array | None
    ended: Array | None
    linear_before_reset: bool
    input_forget: bool
    temporaries: Temporaries

    @property
    def columns(self) -> Array:
        """``rows`` gate by gate: a view [G, n, B, H]."""
        count, batch, _ = self.rows.shape
        hidden = self.grads[0].shape[2]
        gates = self.rows.shape[2] // hidden
        return self.rows.reshape(count, batch, gates, hidden).transpose(2, 0, 1, 3)

    def save(self) -> list[Call]:
        """Calls that save the gradients of the states for `settle`."""
        if self.ended is None:
            return []
        return [
            partial(np.copyto, copy, grad)
            for copy, grad in zip(self.temporaries.saved, self.grads, strict=True)
        ]

    def clear(self, *results: Array | None) -> list[Call]:
        """Calls that make results zero where the sequence has ended."""
        if self.ended is None:
            return []
        return [
            partial(np.copyto, result, 0, where=self.ended)
            for result in results
            if result is not None
        ]

    def settle(self) -> list[Call]:
        """Calls that let the gradients of the states pass where the sequence has ended."""
        if self.ended is None:
            return []
        return [
            partial(np.copyto, grad, copy, where=self.ended)
            for copy, grad in zip(self.temporaries.saved, self.grads, strict=True)
        ]

    def through(self, gates: slice, columns: slice, out: Array) -> Call:
        """Multiply the gradients in some columns with R of some gates; both in units of gates."""
        hidden = out.shape[2]
        some = slice(columns.start * hidden, columns.stop * hidden)
        weights = self.recurrent[:, gates.start * hidden : gates.stop * hidden]
        return partial(np.matmul, self.rows[..., some], weights, out=out)


def rnn_backward(parts: GradParts) -> list[Call]:
    """RNN."""
    (grad,), (result,) = parts.grads, parts.after
    work = parts.temporaries
    (function,) = parts.functions
    return [
        *parts.save(),
        *function.backward(result, grad, parts.columns[0], work.spare[0], clip=parts.clip),
        *parts.clear(parts.rows),
        parts.through(slice(0, 1), slice(0, 1), grad),
        *parts.settle(),
    ]


def lstm_backward(parts: GradParts) -> list[Call]:
    """LSTM."""
    gates, columns, work = parts.gates, parts.columns, parts.temporaries
    i, o, f, g, squashed = gates
    dh, dc = parts.grads
    outer, spare = work.outer, work.spare
    first, second, third = parts.functions
    calls: list[Call] = [
        *parts.save(),
        partial(np.multiply, dh, squashed, out=outer[1]),
        partial(np.multiply, dh, o, out=spare[0]),
        *third.backward(squashed, spare[0], spare[0], spare[1]),
        partial(np.add, dc, spare[0], out=dc),
    ]
    if parts.peepholes is not None:
        calls += first.backward(o, outer[1], columns[1], spare[0], clip=parts.clip)
        calls += _peep_backward(parts, 1)
    calls += _input_and_forget(parts)
    calls += [
        partial(np.multiply, dc, i, out=outer[3]),
        partial(np.multiply, dc, f, out=dc),
        *first.backward(gates[:3], outer[:3], columns[:3], spare[:3], clip=parts.clip),
        *second.backward(g, outer[3], columns[3], spare[3], clip=parts.clip),
    ]
    if parts.peepholes is not None:
        calls += _peep_backward(parts, 0) + _peep_backward(parts, 2)
    return [
        *calls,
        *parts.clear(parts.rows),
        parts.through(slice(0, 4), slice(0, 4), dh),
        *parts.settle(),
    ]


def _input_and_forget(parts: GradParts) -> list[Call]:
    """The gradients of i and f: dc * g and dc * c; if f is 1 - i, that of f is part of i's."""
    g, dc, c, outer = parts.gates[3], parts.grads[1], parts.before[1], parts.temporaries.outer
    if parts.input_forget:
        return [
            partial(np.subtract, g, c, out=outer[0]),
            partial(np.multiply, outer[0], dc, out=outer[0]),
            partial(outer[2].fill, 0),
        ]
    return [
        partial(np.multiply, dc, g, out=outer[0]),
        partial(np.multiply, dc, c, out=outer[2]),
    ]


def _peep_backward(parts: GradParts, gate: int) -> list[Call]:
    """Add what comes back through the peephole of a gate to the cell state's gradient."""
    assert parts.peepholes is not None
    spare, dc = parts.temporaries.spare[0], parts.grads[1]
    weights = parts.peepholes[:, None, gate]
    return [
        partial(np.multiply, parts.columns[gate], weights, out=spare),
        partial(np.add, dc, spare, out=dc),
    ]


def gru_backward(parts: GradParts) -> list[Call]:
    """GRU."""
    (dh,), (h,), new = parts.grads, parts.before, parts.gates[-1]
    work = parts.temporaries
    calls: list[Call] = [
        *parts.save(),
        partial(np.subtract, h, new, out=work.outer[0]),
        partial(np.multiply, work.outer[0], dh, out=work.outer[0]),
        *_update_gate(parts),
        partial(np.subtract, dh, work.direct, out=work.outer[2]),
    ]
    calls += _late_reset(parts) if parts.linear_before_reset else _early_reset(parts)
    return [
        *calls,
        partial(np.add, dh, work.direct, out=dh),
        *parts.settle(),
    ]


def _update_gate(parts: GradParts) -> list[Call]:
    """Calls for ``direct = dh * z``, and for what attention does to z and its gradient."""
    z, dh, work = parts.gates[0], parts.grads[0], parts.temporaries
    left, taken = parts.attention, parts.attention_grad
    if left is None:
        return [partial(np.multiply, dh, z, out=work.direct)]
    calls: list[Call] = []
    if taken is not None:
        calls = [
            partial(np.multiply, work.outer[0], z, out=work.spare[0]),
            partial(np.sum, work.spare[0], axis=-1, keepdims=True, out=taken),
            *parts.clear(taken),
        ]
    return [
        *calls,
        partial(np.multiply, work.outer[0], left, out=work.outer[0]),
        partial(np.multiply, dh, z, out=work.direct),
        partial(np.multiply, work.direct, left, out=work.direct),
    ]


def _late_reset(parts: GradParts) -> list[Call]:
    """From the gradient of n on, for n = g(x + r * (R h))."""
    gates, columns, work = parts.gates, parts.columns, parts.temporaries
    first, second = parts.functions
    spare = work.spare
    _, r, product, new = gates
    return [
        *second.backward(new, work.outer[2], columns[0], spare[0], clip=parts.clip),
        partial(np.multiply, columns[0], product, out=work.outer[1]),
        partial(np.multiply, columns[0], r, out=columns[3]),
        *first.backward(gates[:2], work.outer[:2], columns[1:3], spare[:2], clip=parts.clip),
        *parts.clear(parts.rows),
        parts.through(slice(0, 3), slice(1, 4), parts.grads[0]),
    ]


def _early_reset(parts: GradParts) -> list[Call]:
    """From the gradient of n on, for n = g(x + R (r * h))."""
    gates, columns, work = parts.gates, parts.columns, parts.temporaries
    first, second = parts.functions
    (dh,), (h,), remembered = parts.grads, parts.before, parts.remembered
    assert remembered is not None
    _, r, new = gates
    inner, spare = work.spare[2], work.spare
    return [
        *second.backward(new, work.outer[2], columns[2], spare[0], clip=parts.clip),
        parts.through(slice(2, 3), slice(2, 3), inner),
        partial(np.multiply, inner, h, out=work.outer[1]),
        partial(np.multiply, inner, r, out=inner),
        partial(np.add, work.direct, inner, out=work.direct),
        partial(np.multiply, r, h, out=remembered),
        *first.backward(gates[:2], work.outer[:2], columns[:2], spare[:2], clip=parts.clip),
        *parts.clear(parts.rows, remembered),
        parts.through(slice(0, 2), slice(0, 2), dh),
    ]
