"""Recurrent layers whose weights are bytes.

What they are multiplied by is rounded to bytes: the input by the range of each sequence, states by
that of each row.  Here both factors of such a product are floats that hold what the bytes stand
for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as with_changes
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.ground.frozen import replace
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.derived import derived
from popc_runtime.kernels.parts.rnn_cells import Cell, CellParts, lstm
from popc_runtime.kernels.parts.rnn_layers import LSTM, PEEPHOLES
from popc_runtime.kernels.parts.rnn_operands import (
    LENGTHS,
    R_SCALE,
    R_ZERO,
    W_SCALE,
    W_ZERO,
    R,
    W,
    X,
)
from popc_runtime.kernels.rnn import recurrent

__all__ = ["KERNELS", "rounded_rows"]

_STEPS: Final = np.float32(255)
_LEAST: Final = 1e-30  # a range below it is nothing


def rounded_rows(x: Array, axes: int | tuple[int, ...] = -1) -> Array:
    """Rows of ``x`` [float32] as (byte - zero point) * scale, by ranges along ``axes``, with 0.

    Those of which a number is not finite are undefined.
    """
    with np.errstate(all="ignore"):
        least, most = (limit(x, axis=axes, keepdims=True, initial=0) for limit in (np.min, np.max))
        width = most - least
        scale = width / _STEPS
        zero = np.rint(-least / scale)
        numbers = np.minimum(np.rint(x / scale) + zero, _STEPS)
        rows = np.where(width < _LEAST, 0, (numbers - zero) * scale)
    rounded: Array = np.where(width <= np.float32(3e38), rows, np.float32(np.nan))
    return rounded


def _weights(
    binding: Binding, index: int, scale_index: int, zero_index: int
) -> tuple[Array, tuple[Call, ...]]:
    weights, scale = binding.input(index), binding.input(scale_index)
    zero = binding.optional(zero_index)

    def fill(out: Array) -> Iterator[Call]:
        if zero is None:
            yield partial(np.copyto, out, weights)
        else:
            yield partial(np.subtract, weights, zero[..., None], out=out, dtype=np.float32)
        yield partial(np.multiply, out, scale[..., None], out=out)

    sources = (index, scale_index, zero_index)
    return derived(binding, sources, weights.shape, np.float32, fill)


def _rounding_lstm(parts: CellParts) -> Cell:
    return lstm(with_changes(parts, rounded=rounded_rows))


def _kernel(binding: Binding) -> Calls:
    source = binding.input(X)
    x = binding.scratch.take(source.shape, np.float32)

    lengths, steps = binding.optional(LENGTHS), np.arange(len(source))[:, None, None]

    def round_input() -> None:
        given = source if lengths is None else np.where(steps < lengths[:, None], source, 0)
        np.copyto(x, rounded_rows(given, (0, 2)))

    w, before = _weights(binding, W, W_SCALE, W_ZERO)
    r, more = _weights(binding, R, R_SCALE, R_ZERO)
    inputs, constant = list(binding.inputs), list(binding.constant)
    inputs[:3] = x, w, r
    constant[:3] = False, not before, not more
    count = PEEPHOLES + 1
    layer = replace(
        binding,
        inputs=tuple(inputs[:count]),
        input_dtypes=(binding.input_dtypes[X],) * 3 + binding.input_dtypes[3:count],
        constant=tuple(constant[:count]),
    )
    calls = _LSTM(layer)
    rest = calls if isinstance(calls, tuple) else (calls,)
    return (round_input, *before, *more, *rest)


_LSTM: Final = recurrent(LSTM, _rounding_lstm)

KERNELS: Final[dict[str, Kernel]] = {"DynamicQuantizeLSTM": _kernel}
