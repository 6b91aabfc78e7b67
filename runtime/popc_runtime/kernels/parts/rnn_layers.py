"""Shared parts of both passes of recurrent layers: kinds, directions, views.

Operands of every layer: X [S, B, I], W [D, G*H, I], R [D, G*H, H], bias [D, 2*G*H], lengths [B],
initial_h [D, B, H], then initial_c [D, B, H] and peepholes [D, 3*H] of LSTM, or the attention
[S, B] of GRU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call
from popc_runtime.kernels.core.blocking import conversion
from popc_runtime.kernels.core.copying import as_contiguous
from popc_runtime.kernels.parts.rnn_functions import Function
from popc_runtime.kernels.parts.rnn_operands import (
    ATTENTION,
    BIAS,
    INITIAL_C,
    INITIAL_H,
    LENGTHS,
    PEEPHOLES,
    R,
    W,
    X,
)

__all__ = [
    "ATTENTION",
    "BIAS",
    "GRU",
    "INITIAL_C",
    "INITIAL_H",
    "LENGTHS",
    "LSTM",
    "PEEPHOLES",
    "RNN",
    "Layer",
    "LayerKind",
    "R",
    "W",
    "X",
    "attention_left",
    "beyond_lengths",
    "layers_of",
    "pick",
    "wide_contiguous",
]


@dataclass(frozen=True, slots=True)
class LayerKind:
    """A kind of layer: which function each gate goes through, how many functions and states."""

    gate_functions: tuple[int, ...]
    functions: int
    states: int


GRU: Final = LayerKind(gate_functions=(0, 0, 1), functions=2, states=1)
LSTM: Final = LayerKind(gate_functions=(0, 0, 0, 1), functions=3, states=2)
RNN: Final = LayerKind(gate_functions=(0,), functions=1, states=1)


@dataclass(frozen=True, slots=True)
class Layer:
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
    kind: LayerKind
    directions: slice
    backward: tuple[bool, ...]
    functions: tuple[Function, ...]
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The number of directions that run here, of steps, the batch and the hidden size."""
        steps, batch, _ = self.binding.input(X).shape
        return len(self.backward), steps, batch, self.binding.input(R).shape[2]

    @property
    def gains(self) -> Array:
        """[1, G * H]: what weights are multiplied by for the functions they lead to."""
        gains = [self.functions[index].gain for index in self.kind.gate_functions]
        return np.repeat(gains, self.shape[3]).astype(self.dtype)[None]

    @property
    def resets_late(self) -> bool:
        """True if a GRU's reset gate applies to the recurrent product, bias included."""
        return self.kind is GRU and bool(self.binding.integer("linear_before_reset", 0))

    @property
    def attention(self) -> Array | None:
        """GRU: how much each step takes away from the update gate, [S, B]."""
        return self.binding.optional(ATTENTION) if self.kind is GRU else None

    @property
    def peepholes(self) -> Array | None:
        """LSTM: weights of the cell state in the gates i, o and f, [D, 3 * H]."""
        return self.binding.optional(PEEPHOLES) if self.kind is LSTM else None

    def times(self, step: int, steps: int) -> list[int]:
        """The time that each direction has come to in a step."""
        return [steps - 1 - step if back else step for back in self.backward]

    def places(self, step: int, steps: int) -> list[int]:
        """The places of the directions' times in an array whose first axis is [n * steps]."""
        return [index * steps + time for index, time in enumerate(self.times(step, steps))]

    def take(self, shape: tuple[int, ...]) -> Array:
        """Scratch memory in the dtype of the computation."""
        return self.binding.scratch.take(shape, self.dtype)


def layers_of(binding: Binding, kind: LayerKind, dtype: np.dtype[Any]) -> list[Layer]:
    """Both directions together if they have the same functions, else one by one."""
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
    make = partial(Layer, binding, kind)
    if direction != "bidirectional":
        return [make(slice(0, 1), (direction == "reverse",), first, dtype)]
    if first == second:
        return [make(slice(0, 2), (False, True), first, dtype)]
    return [
        make(slice(0, 1), (False,), first, dtype),
        make(slice(1, 2), (True,), second, dtype),
    ]


def attention_left(layer: Layer) -> tuple[Array | None, tuple[Call, ...]]:
    """The factor of the update gate: 1 - attention, [S, B, 1]."""
    attention = layer.attention
    if attention is None:
        return None, ()
    left = layer.take((*attention.shape, 1))
    one = np.ones((), layer.dtype)
    return left, (partial(np.subtract, one, attention[..., None], out=left),)


def pick(x: Array, places: Sequence[int], axis: int = 0) -> Array:
    """A view of the one or two given elements of an axis of ``x``, in this order."""
    first, last = places[0], places[-1]
    step = last - first or 1
    stop = last + (1 if step > 0 else -1)
    index = (slice(None),) * axis
    return x[(*index, slice(first, None if stop < 0 else stop, step))]


def beyond_lengths(lengths: Array, hidden: Array) -> Call:
    """A call that marks in ``hidden`` [n, S, B, 1] the steps beyond each sequence's length."""
    times = np.arange(hidden.shape[1], dtype=lengths.dtype)[:, None, None]
    return partial(np.greater_equal, times, lengths[:, None], out=hidden)


def wide_contiguous(
    binding: Binding, index: int, dtype: np.dtype[Any]
) -> tuple[Array, tuple[Call, ...]]:
    """Operand ``index`` as a C-contiguous array of ``dtype``, and the calls that make it so."""
    array = binding.input(index)
    if array.dtype == dtype:
        return as_contiguous(binding, index)
    wide = binding.scratch.take(array.shape, dtype)
    return wide, conversion(wide, array, binding.scratch)
