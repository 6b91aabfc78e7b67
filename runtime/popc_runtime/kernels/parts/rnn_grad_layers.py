"""The gradients of one layer's directions, for `rnn_grad`: back through time, then all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Call
from popc_runtime.kernels.core.sharing import even_slices, share_count
from popc_runtime.kernels.parts.common_left import CommonLeft, common_left
from popc_runtime.kernels.parts.lstm_steps import USUAL_FUNCTIONS, LstmSteps, lstm_steps
from popc_runtime.kernels.parts.rnn_grad_cells import GradParts, Temporaries
from popc_runtime.kernels.parts.rnn_layers import (
    ATTENTION,
    BIAS,
    GRU,
    INITIAL_C,
    INITIAL_H,
    LSTM,
    PEEPHOLES,
    Layer,
    R,
    W,
    attention_left,
    pick,
)

__all__ = ["Chunk", "GradOperands", "LayerGrad", "StepCalls"]

# The calls of one step.
StepCalls: TypeAlias = Callable[[GradParts], "list[Call]"]
# A share of the work, for `parallel_calls`.
Chunk: TypeAlias = Callable[[], Iterator[Call]]
# Right matrices, and where products with them go.
_Products: TypeAlias = "list[tuple[Array, Array]]"


@dataclass(frozen=True, slots=True)
class GradOperands:
    """The arrays that all directions read and write, in the dtype of the computation.

    Attributes:
        x: [S, B, I], zero where a sequence has ended.
        w, r: The weights.
        states: [states, D, S + 1, B, H].
        gates: [K, D, S, B, H]; ``None`` for RNN.
        grad_y: [S, D, B, H] or ``None``, zero where a sequence has ended.
        peepholes: [D, 3, H] or ``None``.
        ended: Whether a sequence ends before a step, [S, B, 1], or ``None``.
        grad_states: The gradients of Y_h and Y_c, [D, B, H] each, or ``None``.
        results: By the number of the layer's operand: where its gradient goes.
    """

    x: Array
    w: Array
    r: Array
    states: Array
    gates: Array | None
    grad_y: Array | None
    peepholes: Array | None
    ended: Array | None
    grad_states: Sequence[Array | None]
    results: dict[int, Array]


class LayerGrad:
    """The directions of a layer that run together.

    Attributes:
        layer: The directions.
        rows: Gradients of the gates' arguments, [n, S * B, columns]; see `GradParts.rows`.
        attention: Minus each direction's gradient of the attention, [n, S, B, 1], if it is wanted.
    """

    def __init__(self, layer: Layer, operands: GradOperands) -> None:
        self.layer = layer
        self._operands = operands
        count, steps, batch, hidden = layer.shape
        gates = len(layer.kind.gate_functions) + layer.resets_late
        self.rows = layer.take((count, steps * batch, gates * hidden))
        is_early = layer.kind is GRU and not layer.resets_late
        self._remembered = layer.take((count, steps * batch, hidden)) if is_early else None
        has_attention = layer.kind is GRU and ATTENTION in operands.results
        self.attention = layer.take((count, steps, batch, 1)) if has_attention else None
        self._grads = [layer.take((count, batch, hidden)) for _ in range(layer.kind.states)]

    # -- back through time -----------------------------------------------------------------------

    def all_steps(self, step_calls: StepCalls) -> Iterator[Call]:
        """The calls that fill `rows`."""
        layer, operands = self.layer, self._operands
        steps = layer.shape[1]
        for given, grad in zip(operands.grad_states, self._grads, strict=False):
            value = 0 if given is None else given[layer.directions]
            yield partial(np.copyto, grad, value, casting="same_kind")
        left, prepare = attention_left(layer)
        yield from prepare
        work = self._temporaries()
        calls: list[Call] = []
        for step in reversed(range(steps)):
            if operands.grad_y is not None:
                target = self._grads[0]
                result = self._grad_of_result(operands.grad_y, step)
                calls.append(partial(np.add, target, result, out=target))
            calls += step_calls(self._parts(step, left, work))
        usual = self._usual_steps()
        yield from calls if usual is None else (partial(lstm_steps, calls, usual),)

    def _usual_steps(self) -> LstmSteps | None:
        """Operands of an LSTM with the standard's functions, and nothing beyond states and bias."""
        layer, operands, binding = self.layer, self._operands, self.layer.binding
        count = len(operands.r)
        plain = operands.ended is None and operands.peepholes is None and operands.gates is not None
        usual = binding.attributes["activations"] == USUAL_FUNCTIONS * count
        bounded = binding.number("clip", 0.0) or binding.integer("input_forget", 0)
        if layer.kind is not LSTM or not plain or not usual or bounded or len(self.rows) < count:
            return None
        gates, cells = operands.gates, operands.states[1]
        arrays = [operands.r, gates, cells, operands.grad_y, self.rows, *self._grads]
        if not all(x is None or (x.flags.c_contiguous and x.dtype == np.float32) for x in arrays):
            return None
        assert gates is not None
        given, (dh, dc) = operands.grad_y, self._grads
        first = INITIAL_H in operands.results
        return LstmSteps(operands.r, gates, cells, given, self.rows, dh, dc, layer.backward, first)

    def _temporaries(self) -> Temporaries:
        layer = self.layer
        shape = self._grads[0].shape
        gates = max(3, len(layer.kind.gate_functions))
        saved = [layer.take(shape) for _ in self._grads] if self._operands.ended is not None else []
        return Temporaries(
            outer=layer.take((gates, *shape)),
            spare=layer.take((gates, *shape)),
            direct=layer.take(shape),
            saved=saved,
        )

    def _grad_of_result(self, grad_y: Array, step: int) -> Array:
        layer, directions = self.layer, grad_y.shape[1]
        times = enumerate(layer.times(step, layer.shape[1]), start=layer.directions.start)
        flat = grad_y.reshape(len(grad_y) * directions, *grad_y.shape[2:])
        return pick(flat, [time * directions + place for place, time in times])

    def _parts(self, step: int, left: Array | None, work: Temporaries) -> GradParts:
        layer, operands = self.layer, self._operands
        count, steps, batch, _ = layer.shape
        places, times = layer.places(step, steps), layer.times(step, steps)

        def at(x: Array | None) -> Array | None:
            """The rows of the step, of an array [n, S * B, ...]."""
            if x is None:
                return None
            return pick(x.reshape(count * steps, batch, x.shape[-1]), places)

        rows = at(self.rows)
        assert rows is not None
        return GradParts(
            grads=self._grads,
            before=self._states(step),
            after=self._states(step + 1),
            gates=self._gates(places),
            rows=rows,
            remembered=at(self._remembered),
            recurrent=operands.r[layer.directions],
            functions=layer.functions,
            clip=layer.binding.number("clip", 0.0),
            peepholes=None if operands.peepholes is None else operands.peepholes[layer.directions],
            attention=None if left is None else pick(left, times),
            attention_grad=at(self.attention),
            ended=None if operands.ended is None else pick(operands.ended, times),
            linear_before_reset=layer.resets_late,
            input_forget=bool(layer.binding.integer("input_forget", 0)),
            temporaries=work,
        )

    def _states(self, step: int) -> list[Array]:
        """The states before a step, each [n, B, H]."""
        layer = self.layer
        count, steps, batch, hidden = layer.shape
        kept = self._operands.states[:, layer.directions]
        places = layer.places(step, steps + 1)
        return [pick(x.reshape(count * (steps + 1), batch, hidden), places) for x in kept]

    def _gates(self, places: list[int]) -> Array:
        gates, (count, steps, batch, hidden) = self._operands.gates, self.layer.shape
        if gates is None:
            return np.empty((0, count, batch, hidden), self.layer.dtype)
        some = gates[:, self.layer.directions]
        return pick(some.reshape(len(some), count * steps, batch, hidden), places, axis=1)

    # -- all steps at once -----------------------------------------------------------------------

    def chunks(self) -> Iterator[Chunk]:
        """The gradients of W, R, bias and peepholes, as work for `parallel_calls`."""
        results = self._operands.results
        first = self.layer.directions.start
        for index in range(len(self.rows)):
            for left, products in self._weight_products(index).values():
                yield from _product_chunks(left, products, self.layer)
            if BIAS in results:
                yield partial(self._bias, index, results[BIAS][first + index])
            if PEEPHOLES in results:
                yield partial(self._peepholes, index, results[PEEPHOLES][first + index])

    def _weight_products(self, index: int) -> dict[tuple[int, int], tuple[Array, _Products]]:
        """The products of W and R, by the columns of `rows` that they have in common."""
        results, rows = self._operands.results, self.rows[index]
        first = self.layer.directions.start + index
        found: dict[tuple[int, int], tuple[Array, _Products]] = {}

        def add(columns: slice, right: Array, out: Array) -> None:
            key = (columns.start, columns.stop)
            found.setdefault(key, (rows[:, columns], []))[1].append((right, out))

        if W in results:
            x = self._operands.x.reshape(len(rows), self._operands.x.shape[2])
            for columns, gates in self.input_columns():
                add(columns, x, results[W][first, gates])
        if R in results:
            for columns, gates, state in self._state_columns(index):
                add(columns, state, results[R][first, gates])
        return found

    def input_columns(self) -> list[tuple[slice, slice]]:
        """Columns of `rows` and the rows of W that they belong to."""
        hidden, columns = self.layer.shape[3], self.rows.shape[2]
        if not self.layer.resets_late:
            return [(slice(0, columns), slice(0, columns))]
        return [
            (slice(hidden, 3 * hidden), slice(0, 2 * hidden)),
            (slice(0, hidden), slice(2 * hidden, 3 * hidden)),
        ]

    def _state_columns(self, index: int) -> list[tuple[slice, slice, Array]]:
        """Columns of `rows`, the rows of R they belong to, and what these are multiplied with."""
        hidden, columns = self.layer.shape[3], self.rows.shape[2]
        state = self._all_states(0, index, after=False)
        if self.layer.resets_late:
            return [(slice(hidden, columns), slice(0, columns - hidden), state)]
        if self._remembered is None:
            return [(slice(0, columns), slice(0, columns), state)]
        early, late = slice(0, 2 * hidden), slice(2 * hidden, 3 * hidden)
        return [(early, early, state), (late, late, self._remembered[index])]

    def _all_states(self, which: int, index: int, *, after: bool) -> Array:
        """A state before (or after) each step, in order of time, [S * B, H]."""
        layer = self.layer
        _, steps, batch, hidden = layer.shape
        start = int(layer.backward[index] != after)
        kept = self._operands.states[which, layer.directions.start + index]
        states: Array = kept[start : start + steps].reshape(steps * batch, hidden)
        return states

    def _bias(self, index: int, target: Array) -> Iterator[Call]:
        """Sums over steps and batch, once for W's half of the bias and once for R's."""
        rows, half = self.rows[index], len(target) // 2
        sums = self.layer.take(rows.shape[1:])
        yield partial(np.add.reduce, rows, axis=0, out=sums)
        for columns, gates in self.input_columns():
            yield partial(np.copyto, target[:half][gates], sums[columns])
        late = self.layer.shape[3] if self.layer.resets_late else 0
        yield partial(np.copyto, target[half:], sums[late:])

    def _peepholes(self, index: int, target: Array) -> Iterator[Call]:
        hidden = self.layer.shape[3]
        product = self.layer.take((len(self.rows[index]), hidden))
        for gate, after in enumerate((False, True, False)):
            columns = slice(gate * hidden, (gate + 1) * hidden)
            state = self._all_states(1, index, after=after)
            yield partial(np.multiply, self.rows[index][:, columns], state, out=product)
            yield partial(np.add.reduce, product, axis=0, out=target[columns])

    def finish(self) -> Iterator[Call]:
        """The gradients of the initial states."""
        for index, grad in zip((INITIAL_H, INITIAL_C), self._grads, strict=False):
            if index in self._operands.results:
                yield partial(np.copyto, self._operands.results[index][self.layer.directions], grad)

    def input_terms(self, part: slice) -> Iterator[tuple[Array, Array]]:
        """Pairs of matrices whose products add up to rows of X's gradient."""
        first = self.layer.directions.start
        for index, rows in enumerate(self.rows):
            for columns, gates in self.input_columns():
                yield rows[part, columns], self._operands.w[first + index, gates]


def _product_chunks(left: Array, products: _Products, layer: Layer) -> Iterator[Chunk]:
    """``left.T @ right`` for each right matrix, in shares; on one thread as one call."""
    shares = [
        partial(_product_share, left, right, out, part)
        for right, out in products
        for part in even_slices(len(out), share_count(multiplications=out.size * len(left)))
    ]
    lines = all(x.strides[-1] == x.itemsize for pair in products for x in pair)
    if layer.binding.scratch.threads > 1 or layer.dtype != np.float32 or not lines:
        yield from shares
        return

    def together() -> Iterator[Call]:
        calls = [call for share in shares for call in share()]
        yield partial(common_left, calls, CommonLeft(left, products))

    yield together


def _product_share(left: Array, right: Array, out: Array, part: slice) -> Iterator[Call]:
    yield partial(np.matmul, left.T[part], right, out=out[part])
