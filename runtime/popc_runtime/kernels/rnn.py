"""Recurrent layers: RNN, LSTM, GRU.

What does not depend on the previous step is done for all steps at once: one matrix product of the
whole input with W.  A step is then one product of the state with R and a few calls on fixed
buffers; only the step's share of the first product and its result lie elsewhere in each step.

Both directions of a bidirectional layer run in the same calls, the backward one at the time it has
come to: for each step, one strided view covers the two places that it reads (or writes).

sigmoid(x) = (1 + tanh(x / 2)) / 2 costs numpy three calls instead of four, and none for x / 2 if
the rows of W, R and bias that lead to it are halved beforehand.

For training, a step works in the memory that is kept for the backward pass: states and gates of
all steps, each quantity by itself, so that it can be an operand of one large matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.derived import derived
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.sharing import even_slices, share_count
from popc_runtime.kernels.parts.rnn_cells import Cell, CellParts, gru, lstm, rnn
from popc_runtime.kernels.parts.rnn_layers import (
    BIAS,
    GRU,
    INITIAL_C,
    INITIAL_H,
    LENGTHS,
    LSTM,
    PEEPHOLES,
    RNN,
    Layer,
    LayerKind,
    R,
    W,
    X,
    attention_left,
    beyond_lengths,
    layers_of,
    pick,
    wide_contiguous,
)

__all__ = ["KERNELS", "recurrent"]

_INITIAL: Final = (INITIAL_H, INITIAL_C)

# (states before, states after, gates, attention) -> the cell of a step.
_MakeCell: TypeAlias = Callable[[Sequence[Array], Sequence[Array], Array, "Array | None"], Cell]


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of all directions: the state before it and after it, which may be one memory."""

    cell: Cell
    before: Sequence[Array]
    after: Sequence[Array]


def recurrent(kind: LayerKind, build: Callable[[CellParts], Cell]) -> Kernel:
    """The kernel of a kind of layer whose steps are made by ``build``."""

    def kernel(binding: Binding) -> Calls:
        y = binding.optional_output(0)
        dtype = np.dtype(np.float64 if binding.input(X).dtype == np.float64 else np.float32)
        x, calls = wide_contiguous(binding, X, dtype)
        result = y
        if y is not None and y.dtype != dtype:
            result = binding.scratch.take(y.shape, dtype)
        for layer in layers_of(binding, kind, dtype):
            calls += _layer_calls(layer, build, x, result)
        if y is not None and result is not None and result is not y:
            calls += (partial(np.copyto, y, result, casting="same_kind"),)
        return calls

    return kernel


def _layer_calls(
    layer: Layer, build: Callable[[CellParts], Cell], x: Array, y: Array | None
) -> tuple[Call, ...]:
    binding, count, steps = layer.binding, layer.shape[0], layer.shape[1]
    shares, project = _shares(layer, x)
    states = _states(layer)
    start = [
        _initial(layer, index, array) for index, array in zip(_INITIAL, states[0], strict=False)
    ]
    prepared, prepare = _steps(layer, build, states)
    finish = [
        partial(np.copyto, target[layer.directions], array, casting="same_kind")
        for index, array in enumerate(states[-1], start=1)
        if (target := binding.optional_output(index)) is not None
    ]
    run = _all_steps(layer, prepared, shares, y)
    lengths = binding.optional(LENGTHS)
    if lengths is not None:
        hidden = binding.scratch.take((count, steps, layer.shape[2], 1), np.bool_)
        masked = _all_steps(layer, prepared, shares, y, hidden)
        run = [_by_lengths(lengths, hidden, run, masked)]
    return (*project, *prepare, *start, *run, *finish)


def _shares(layer: Layer, x: Array) -> tuple[Array, tuple[Call, ...]]:
    """X W^T + bias for all steps: [directions, S, B, G * H], times of the gains."""
    binding, gains = layer.binding, layer.gains
    w = binding.input(W)[layer.directions]
    steps, batch, width = x.shape
    count, rows = w.shape[:2]
    weights, calls = derived(
        binding,
        [W],
        w.shape,
        layer.dtype,
        lambda out: [partial(np.multiply, w, gains[..., None], out=out, casting="same_kind")],
    )
    shares = layer.take((count, steps, batch, rows))
    flat, target = x.reshape(steps * batch, width), shares.reshape(count, steps * batch, rows)
    bias, more = _bias(layer)

    def project(index: int, part: slice) -> Iterator[Call]:
        yield partial(np.matmul, flat[part], weights[index].T, out=target[index, part])
        if bias is not None:
            yield partial(np.add, target[index, part], bias[index], out=target[index, part])

    parts = even_slices(
        steps * batch, share_count(multiplications=shares.size * width, elements=shares.size)
    )
    chunks = [partial(project, index, part) for index in range(count) for part in parts]
    return shares, (*calls, *more, *parallel_calls(binding.scratch, chunks))


def _bias(layer: Layer) -> tuple[Array | None, tuple[Call, ...]]:
    """The bias [directions, G * H] that does not depend on the state."""
    bias = layer.binding.optional(BIAS)
    if bias is None:
        return None, ()
    of_input, of_state = np.split(bias[layer.directions], 2, axis=1)
    if layer.resets_late:
        always = (np.arange(of_state.shape[1]) < 2 * layer.shape[3]).astype(layer.dtype)
    else:
        always = np.ones(1, layer.dtype)
    gains = layer.gains
    return derived(
        layer.binding,
        [BIAS],
        of_input.shape,
        layer.dtype,
        lambda out: [
            partial(np.multiply, of_state, always, out=out, casting="same_kind"),
            partial(np.add, out, of_input, out=out, casting="same_kind"),
            partial(np.multiply, out, gains, out=out),
        ],
    )


def _states(layer: Layer) -> list[list[Array]]:
    """The state arrays [n, B, H] (h; LSTM: h and c) before each step, and after the last.

    If they are kept, each has a place in the result [states, D, S + 1, B, H]: in the order of time,
    a backward direction starting from the end.  Else the same memory is used again and again.
    """
    count, steps, batch, hidden = layer.shape
    kept = layer.binding.optional_output(1 + layer.kind.states)
    if kept is None:
        return [[layer.take((count, batch, hidden)) for _ in range(layer.kind.states)]] * (
            steps + 1
        )
    some = kept[:, layer.directions]
    flat = some.reshape(len(some), count * (steps + 1), batch, hidden)
    return [
        [pick(array, layer.places(step, steps + 1)) for array in flat] for step in range(steps + 1)
    ]


def _steps(
    layer: Layer, build: Callable[[CellParts], Cell], states: list[list[Array]]
) -> tuple[list[_Step], tuple[Call, ...]]:
    """Every step, and the calls that prepare the weights.

    Where neither memory nor operands differ, all steps are one cell.
    """
    make, calls = _cell_maker(layer, build)
    left, more = attention_left(layer)
    scratch, steps, kept = layer.binding.scratch, layer.shape[1], _kept_gates(layer)
    is_same = kept is None and left is None
    gates = layer.take((_kept_count(layer), *states[0][0].shape))
    result: list[_Step] = []
    mark = scratch.mark()
    for step in range(steps):
        if is_same and result:
            result.append(result[0])
            continue
        scratch.rewind(mark)
        attention = None if left is None else pick(left, layer.times(step, steps))
        if kept is not None:
            gates = pick(kept, layer.places(step, steps), axis=1)
        before, after = states[step], states[step + 1]
        result.append(_Step(make(before, after, gates, attention), before, after))
    scratch.skip()
    return result, (*calls, *more)


def _kept_count(layer: Layer) -> int:
    """The number of quantities of each step that the backward pass needs, apart from states."""
    if layer.kind is LSTM:
        return 5
    if layer.kind is GRU:
        return 4 if layer.resets_late else 3
    return 0


def _kept_gates(layer: Layer) -> Array | None:
    """The memory of gates that are kept, [K, n * S, B, H]."""
    if layer.binding.optional_output(1 + layer.kind.states) is None:
        return None
    count, steps, batch, hidden = layer.shape
    kept = layer.binding.optional_output(2 + layer.kind.states)
    if kept is None:
        return np.empty((0, count * steps, batch, hidden), layer.dtype)
    return kept[:, layer.directions].reshape(len(kept), count * steps, batch, hidden)


def _cell_maker(
    layer: Layer, build: Callable[[CellParts], Cell]
) -> tuple[_MakeCell, tuple[Call, ...]]:
    """A function that builds the cell of a step, and the calls that prepare the weights."""
    _, _, batch, hidden = layer.shape
    recurrent, calls = _recurrent_weights(layer, batch)
    gains = layer.gains
    late_bias = peepholes = None
    if layer.resets_late and layer.binding.optional(BIAS) is not None:
        columns = slice(5 * hidden, 6 * hidden)
        late_bias, more = _scaled_row(layer, BIAS, columns, gains[:, 2 * hidden :])
        calls += more
    if layer.peepholes is not None:
        columns = slice(0, 3 * hidden)
        peepholes, more = _scaled_row(layer, PEEPHOLES, columns, gains[:, columns])
        peepholes = peepholes.reshape(-1, 3, hidden)
        calls += more

    def make(
        before: Sequence[Array], after: Sequence[Array], kept: Array, attention: Array | None
    ) -> Cell:
        parts = CellParts(
            states=before,
            results=after,
            kept=kept,
            recurrent=recurrent,
            functions=layer.functions,
            clip=layer.binding.number("clip", 0.0),
            recurrent_bias=late_bias,
            peepholes=peepholes,
            attention=attention,
            linear_before_reset=layer.resets_late,
            input_forget=bool(layer.binding.integer("input_forget", 0)),
            scratch=layer.binding.scratch,
        )
        return build(parts)

    return make, calls


def _recurrent_weights(layer: Layer, batch: int) -> tuple[Array, tuple[Call, ...]]:
    """R of each gate, transposed: [directions, G, H, H], in BLAS's favourite memory order."""
    r = layer.binding.input(R)[layer.directions]
    count, rows, hidden = r.shape
    shape = (count, rows // hidden, hidden, hidden)
    gates, gains = r.reshape(shape), layer.gains.reshape(-1, hidden, 1)

    def fill(out: Array) -> list[Call]:
        target = out if batch == 1 else out.swapaxes(2, 3)
        return [partial(np.multiply, gates, gains, out=target, casting="same_kind")]

    packed, calls = derived(layer.binding, [R], shape, layer.dtype, fill)
    return (packed.swapaxes(2, 3) if batch == 1 else packed), calls


def _scaled_row(
    layer: Layer, index: int, columns: slice, gains: Array
) -> tuple[Array, tuple[Call, ...]]:
    """Columns of an operand [D, ...] times gains, as [directions, 1, ...]."""
    source = layer.binding.input(index)[layer.directions, None, columns]

    def fill(out: Array) -> Iterable[Call]:
        return [partial(np.multiply, source, gains, out=out, casting="same_kind")]

    return derived(layer.binding, [index], source.shape, layer.dtype, fill)


def _initial(layer: Layer, index: int, state: Array) -> Call:
    given = layer.binding.optional(index)
    if given is None:
        return partial(np.copyto, state, 0)
    return partial(np.copyto, state, given[layer.directions], casting="same_kind")


def _all_steps(
    layer: Layer,
    prepared: list[_Step],
    shares: Array,
    y: Array | None,
    hidden: Array | None = None,
) -> list[Call]:
    """The calls of all steps; ``hidden`` [directions, S, B, 1] marks steps beyond the lengths.

    There the state stays, and the result is zero.
    """
    count, steps, *shape = shares.shape
    flat = shares.reshape(count * steps, *shape)
    rows = None if y is None else y.reshape(steps * y.shape[1], *y.shape[2:])
    mask = None if hidden is None else hidden.reshape(count * steps, *hidden.shape[2:])
    saved = _saved(layer, prepared) if hidden is not None else []
    calls: list[Call] = []
    for index, step in enumerate(prepared):
        places = layer.places(index, steps)
        dead = None if mask is None else pick(mask, places)
        calls += _one_step(step, pick(flat, places), saved, dead)
        if y is not None and rows is not None:
            first = layer.directions.start
            times = enumerate(layer.times(index, steps), start=first)
            target = pick(rows, [time * y.shape[1] + place for place, time in times])
            calls.append(partial(np.copyto, target, step.after[0]))
            if dead is not None:
                calls.append(partial(np.copyto, target, 0, where=dead))
    return calls


def _saved(layer: Layer, prepared: list[_Step]) -> list[Array]:
    """Room for the state before a step, if the step overwrites it."""
    if not prepared or prepared[0].before[0] is not prepared[0].after[0]:
        return []
    return [layer.take(array.shape) for array in prepared[0].before]


def _one_step(step: _Step, share: Array, saved: list[Array], dead: Array | None) -> list[Call]:
    calls: list[Call] = [
        partial(np.copyto, copy, state) for copy, state in zip(saved, step.before, strict=False)
    ]
    calls.append(step.cell.start)
    count, batch, hidden = step.after[0].shape
    gates = share.reshape(count, batch, share.shape[2] // hidden, hidden).transpose(2, 0, 1, 3)
    for stage in step.cell.stages:
        part = gates[stage.first : stage.first + len(stage.target)]
        calls.append(partial(np.add, stage.target, part, out=stage.target))
        calls += stage.after
    if dead is not None:
        for old, new in zip(saved or step.before, step.after, strict=True):
            calls.append(partial(np.copyto, new, old, where=dead))
    return calls


def _by_lengths(lengths: Array, hidden: Array, full: list[Call], masked: list[Call]) -> Call:
    """One call that runs all sequences to the end, or each as far as its length says."""
    steps = hidden.shape[1]
    mark = beyond_lengths(lengths, hidden)

    def run() -> None:
        calls = full
        if not np.all(lengths >= steps):
            mark()
            calls = masked
        for call in calls:
            call()

    return run


KERNELS: Final[dict[str, Kernel]] = {
    "GRU": recurrent(GRU, gru),
    "LSTM": recurrent(LSTM, lstm),
    "RNN": recurrent(RNN, rnn),
}
