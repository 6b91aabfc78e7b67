"""Recurrent layers: RNN, LSTM, GRU.

What does not depend on the previous step is done for all steps at once: one matrix product of the
whole input with W.  A step is then one product of the state with R and a few calls on fixed
buffers; only the step's share of the first product and its result lie elsewhere in each step.

Both directions of a bidirectional layer run in the same calls, the backward one at the time it has
come to: for each step, one strided view covers the two places that it reads (or writes).

sigmoid(x) = (1 + tanh(x / 2)) / 2 costs numpy three calls instead of four, and none for x / 2 if
the rows of W, R and bias that lead to it are halved beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.copying import as_contiguous
from popc_runtime.kernels.derived import derived
from popc_runtime.kernels.rnn_cells import Cell, CellParts, Function, gru, lstm, rnn

__all__ = ["KERNELS"]

_X, _W, _R, _BIAS, _LENGTHS, _INITIAL_H, _INITIAL_C, _PEEPHOLES = range(8)


@dataclass(frozen=True, slots=True)
class _CellKind:
    """A kind of layer: how a step is built, and which function each gate goes through."""

    build: Callable[[CellParts], Cell]
    gate_functions: tuple[int, ...]
    functions: int


@dataclass(frozen=True, slots=True)
class _Layer:
    """The directions of a layer that run together: those with the same activation functions.

    Attributes:
        binding: The operands of the whole layer.
        kind: RNN, LSTM or GRU.
        directions: Which directions, as a slice of the operands' direction axis.
        backward: For each direction, whether it starts at the last step.
        functions: The activation functions.
        dtype: Of the computation.
    """

    binding: Binding
    kind: _CellKind
    directions: slice
    backward: tuple[bool, ...]
    functions: tuple[Function, ...]
    dtype: np.dtype[Any]

    @property
    def gains(self) -> Array:
        """[1, G * H]: what weights are multiplied by for the functions they lead to."""
        hidden = self.binding.input(_R).shape[2]
        gains = [self.functions[index].gain for index in self.kind.gate_functions]
        return np.repeat(gains, hidden).astype(self.dtype)[None]

    def times(self, step: int, steps: int) -> list[int]:
        """The time that each direction has come to."""
        return [steps - 1 - step if back else step for back in self.backward]

    def take(self, shape: tuple[int, ...]) -> Array:
        return self.binding.scratch.take(shape, self.dtype)


@dataclass(frozen=True, slots=True)
class _State:
    """What a step updates, with room for the state before it (where lengths differ)."""

    arrays: tuple[Array, ...]
    before: tuple[Array, ...]


def _recurrent(kind: _CellKind) -> Kernel:
    def kernel(binding: Binding) -> Calls:
        x, calls = as_contiguous(binding, _X)
        y = binding.optional_output(0)
        dtype = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
        result = y
        if y is not None and y.dtype != dtype:
            result = binding.scratch.take(y.shape, dtype)
        for layer in _layers(binding, kind, dtype):
            calls += _layer_calls(layer, x, result)
        if y is not None and result is not None and result is not y:
            calls += (partial(np.copyto, y, result, casting="same_kind"),)
        return calls

    return kernel


def _layers(binding: Binding, kind: _CellKind, dtype: np.dtype[Any]) -> list[_Layer]:
    names = binding.attributes["activations"]
    assert isinstance(names, tuple)
    functions = [
        Function(str(name), alpha, beta)
        for name, alpha, beta in zip(
            names, binding.numbers("alphas"), binding.numbers("betas"), strict=True
        )
    ]
    first, second = tuple(functions[: kind.functions]), tuple(functions[kind.functions :])
    direction = binding.text("direction")
    make = partial(_Layer, binding, kind)
    if direction != "bidirectional":
        return [make(slice(0, 1), (direction == "reverse",), first, dtype)]
    if first == second:
        return [make(slice(0, 2), (False, True), first, dtype)]
    return [
        make(slice(0, 1), (False,), first, dtype),
        make(slice(1, 2), (True,), second, dtype),
    ]


def _layer_calls(layer: _Layer, x: Array, y: Array | None) -> tuple[Call, ...]:
    binding = layer.binding
    steps, batch, _ = x.shape
    shape = (len(layer.backward), batch, binding.input(_R).shape[2])
    shares, project = _shares(layer, x)
    h, c = layer.take(shape), layer.take(shape)
    cell, prepare = _cell(layer, h, c)
    indices = (_INITIAL_H, _INITIAL_C) if layer.kind.build is lstm else (_INITIAL_H,)
    arrays = (h, c)[: len(indices)]
    state = _State(arrays, tuple(layer.take(shape) for _ in arrays))
    start = [_initial(layer, index, array) for index, array in zip(indices, arrays, strict=True)]
    finish = [
        partial(np.copyto, target[layer.directions], array, casting="same_kind")
        for index, array in enumerate(arrays, start=1)
        if (target := binding.optional_output(index)) is not None
    ]
    run = _all_steps(layer, cell, shares, y, state)
    lengths = binding.optional(_LENGTHS)
    if lengths is not None:
        hidden = binding.scratch.take((len(layer.backward), steps, batch, 1), np.bool_)
        masked = _all_steps(layer, cell, shares, y, state, hidden)
        run = [_by_lengths(lengths, hidden, run, masked)]
    return (*project, *prepare, *start, *run, *finish)


def _shares(layer: _Layer, x: Array) -> tuple[Array, tuple[Call, ...]]:
    """X W^T + bias for all steps: [directions, S, B, G * H], times of the gains."""
    binding, gains = layer.binding, layer.gains
    w = binding.input(_W)[layer.directions]
    steps, batch, width = x.shape
    count, rows = w.shape[:2]
    weights, calls = derived(
        binding,
        [_W],
        w.shape,
        layer.dtype,
        lambda out: [partial(np.multiply, w, gains[..., None], out=out, casting="same_kind")],
    )
    shares = layer.take((count, steps, batch, rows))
    flat = x.reshape(steps * batch, width)
    if flat.dtype != layer.dtype:
        wide = layer.take(flat.shape)
        calls += (partial(np.copyto, wide, flat),)
        flat = wide
    bias, more = _bias(layer)
    calls += more
    for index in range(count):
        target = shares[index].reshape(steps * batch, rows)
        calls += (partial(np.matmul, flat, weights[index].T, out=target),)
        if bias is not None:
            calls += (partial(np.add, target, bias[index], out=target),)
    return shares, calls


def _bias(layer: _Layer) -> tuple[Array | None, tuple[Call, ...]]:
    """The bias [directions, G * H] that does not depend on the state."""
    bias = layer.binding.optional(_BIAS)
    if bias is None:
        return None, ()
    of_input, of_state = np.split(bias[layer.directions], 2, axis=1)
    if _resets_late(layer):
        hidden = layer.binding.input(_R).shape[2]
        always = (np.arange(of_state.shape[1]) < 2 * hidden).astype(layer.dtype)
    else:
        always = np.ones(1, layer.dtype)
    gains = layer.gains
    return derived(
        layer.binding,
        [_BIAS],
        of_input.shape,
        layer.dtype,
        lambda out: [
            partial(np.multiply, of_state, always, out=out, casting="same_kind"),
            partial(np.add, out, of_input, out=out, casting="same_kind"),
            partial(np.multiply, out, gains, out=out),
        ],
    )


def _resets_late(layer: _Layer) -> bool:
    """Whether a GRU's reset gate applies to the recurrent product, bias included."""
    return layer.kind.build is gru and bool(layer.binding.integer("linear_before_reset", 0))


def _cell(layer: _Layer, h: Array, c: Array) -> tuple[Cell, tuple[Call, ...]]:
    recurrent, calls = _recurrent_weights(layer, batch=h.shape[1])
    hidden, gains = h.shape[2], layer.gains
    late_bias = peepholes = None
    if _resets_late(layer) and layer.binding.optional(_BIAS) is not None:
        columns = slice(5 * hidden, 6 * hidden)
        late_bias, more = _scaled_row(layer, _BIAS, columns, gains[:, 2 * hidden :])
        calls += more
    if layer.binding.optional(_PEEPHOLES) is not None:
        peepholes, more = _scaled_row(
            layer, _PEEPHOLES, slice(0, 3 * hidden), gains[:, : 3 * hidden]
        )
        peepholes = peepholes.reshape(-1, 3, hidden)
        calls += more
    parts = CellParts(
        h=h,
        c=c,
        recurrent=recurrent,
        functions=layer.functions,
        clip=layer.binding.number("clip", 0.0),
        recurrent_bias=late_bias,
        peepholes=peepholes,
        linear_before_reset=_resets_late(layer),
        input_forget=bool(layer.binding.integer("input_forget", 0)),
        scratch=layer.binding.scratch,
    )
    return layer.kind.build(parts), calls


def _recurrent_weights(layer: _Layer, batch: int) -> tuple[Array, tuple[Call, ...]]:
    """R of each gate, transposed: [directions, G, H, H], in BLAS's favourite memory order."""
    r = layer.binding.input(_R)[layer.directions]
    count, rows, hidden = r.shape
    shape = (count, rows // hidden, hidden, hidden)
    gates, gains = r.reshape(shape), layer.gains.reshape(-1, hidden, 1)

    def fill(out: Array) -> list[Call]:
        target = out if batch == 1 else out.swapaxes(2, 3)
        return [partial(np.multiply, gates, gains, out=target, casting="same_kind")]

    packed, calls = derived(layer.binding, [_R], shape, layer.dtype, fill)
    return (packed.swapaxes(2, 3) if batch == 1 else packed), calls


def _scaled_row(
    layer: _Layer, index: int, columns: slice, gains: Array
) -> tuple[Array, tuple[Call, ...]]:
    """Columns of an operand [D, ...] times gains, as [directions, 1, ...]."""
    source = layer.binding.input(index)[layer.directions, None, columns]

    def fill(out: Array) -> Iterable[Call]:
        return [partial(np.multiply, source, gains, out=out, casting="same_kind")]

    return derived(layer.binding, [index], source.shape, layer.dtype, fill)


def _initial(layer: _Layer, index: int, state: Array) -> Call:
    given = layer.binding.optional(index)
    if given is None:
        return partial(state.fill, 0)
    return partial(np.copyto, state, given[layer.directions], casting="same_kind")


def _all_steps(
    layer: _Layer,
    cell: Cell,
    shares: Array,
    y: Array | None,
    state: _State,
    hidden: Array | None = None,
) -> list[Call]:
    """The calls of all steps; ``hidden`` [directions, S, B, 1] marks steps beyond the lengths.

    There the state stays, and the result is zero.
    """
    count, steps = shares.shape[:2]
    flat = shares.reshape(count * steps, *shares.shape[2:])
    rows = None if y is None else y.reshape(steps * y.shape[1], *y.shape[2:])
    mask = None if hidden is None else hidden.reshape(count * steps, *hidden.shape[2:])
    calls: list[Call] = []
    for step in range(steps):
        times = layer.times(step, steps)
        places = [index * steps + time for index, time in enumerate(times)]
        dead = None if mask is None else _pick(mask, places)
        calls += _one_step(cell, _pick(flat, places), state, dead)
        if y is not None and rows is not None:
            first = layer.directions.start
            target = _pick(rows, [time * y.shape[1] + first + i for i, time in enumerate(times)])
            calls.append(partial(np.copyto, target, state.arrays[0]))
            if dead is not None:
                calls.append(partial(np.copyto, target, 0, where=dead))
    return calls


def _one_step(cell: Cell, share: Array, state: _State, dead: Array | None) -> list[Call]:
    calls: list[Call] = []
    if dead is not None:
        for old, new in zip(state.before, state.arrays, strict=True):
            calls.append(partial(np.copyto, old, new))
    calls.append(cell.start)
    hidden = cell.stages[0].target.shape[-1]
    gates = share.reshape(*share.shape[:2], -1, hidden).transpose(2, 0, 1, 3)
    for stage in cell.stages:
        part = gates[stage.first : stage.first + len(stage.target)]
        calls.append(partial(np.add, stage.target, part, out=stage.target))
        calls += stage.after
    if dead is not None:
        for old, new in zip(state.before, state.arrays, strict=True):
            calls.append(partial(np.copyto, new, old, where=dead))
    return calls


def _pick(x: Array, places: Sequence[int]) -> Array:
    """A view of the one or two given elements of the first axis of ``x``, in this order."""
    first, last = places[0], places[-1]
    step = last - first or 1
    stop = last + (1 if step > 0 else -1)
    return x[first : None if stop < 0 else stop : step]


def _by_lengths(lengths: Array, hidden: Array, full: list[Call], masked: list[Call]) -> Call:
    """One call that runs all sequences to the end, or each as far as its length says."""
    steps = hidden.shape[1]
    times = np.arange(steps)[:, None, None]
    ends = lengths[:, None]

    def run() -> None:
        calls = full
        if not np.all(lengths >= steps):
            np.greater_equal(times, ends, out=hidden)
            calls = masked
        for call in calls:
            call()

    return run


KERNELS: Final[dict[str, Kernel]] = {
    "GRU": _recurrent(_CellKind(gru, gate_functions=(0, 0, 1), functions=2)),
    "LSTM": _recurrent(_CellKind(lstm, gate_functions=(0, 0, 0, 1), functions=3)),
    "RNN": _recurrent(_CellKind(rnn, gate_functions=(0,), functions=1)),
}
