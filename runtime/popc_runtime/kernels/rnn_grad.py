"""Gradients of recurrent layers.

Backwards through time, a step is one product of its gates' gradients with R and a few calls on
fixed buffers; the gates' gradients of all steps are collected.  The gradients of X, W, R and the
bias then are one matrix product (or sum) each, over all steps at once.

Both directions run in the same calls, as they do in the forward pass.  Where a sequence has ended,
gates' gradients are zero and the gradients of the states pass through.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.blocking import conversion
from popc_runtime.kernels.core.negation import negative
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.sharing import even_slices, share_count
from popc_runtime.kernels.parts.rnn_grad_cells import gru_backward, lstm_backward, rnn_backward
from popc_runtime.kernels.parts.rnn_grad_layers import Chunk, GradOperands, LayerGrad, StepCalls
from popc_runtime.kernels.parts.rnn_layers import (
    ATTENTION,
    GRU,
    LENGTHS,
    LSTM,
    PEEPHOLES,
    RNN,
    LayerKind,
    R,
    W,
    X,
    beyond_lengths,
    layers_of,
    wide_contiguous,
)

__all__ = ["KERNELS"]

_STATES, _GATES, _GRAD_Y, _GRAD_H, _GRAD_C = range(8, 13)


def _gradient(kind: LayerKind, step_calls: StepCalls) -> Kernel:
    def kernel(binding: Binding) -> Calls:
        dtype = np.dtype(np.float64 if binding.input(X).dtype == np.float64 else np.float32)
        operands, prepare = _operands(binding, kind, dtype)
        layers = [LayerGrad(layer, operands) for layer in layers_of(binding, kind, dtype)]
        run = [call for layer in layers for call in layer.all_steps(step_calls)]
        chunks = [chunk for layer in layers for chunk in layer.chunks()]
        if X in operands.results:
            chunks += _input_chunks(layers, operands.results[X])
        finish = [call for layer in layers for call in layer.finish()]
        if ATTENTION in operands.results and kind is GRU:
            finish += _attention_sum(layers, operands.results[ATTENTION])
        return (
            *prepare,
            *run,
            *parallel_calls(binding.scratch, chunks),
            *finish,
            *_stored(binding, operands.results),
        )

    return kernel


def _operands(
    binding: Binding, kind: LayerKind, dtype: np.dtype[Any]
) -> tuple[GradOperands, tuple[Call, ...]]:
    calls: list[Call] = []

    def ready(index: int) -> Array:
        array, more = wide_contiguous(binding, index, dtype)
        calls.extend(more)
        return array

    def optional(index: int) -> Array | None:
        return None if binding.optional(index) is None else ready(index)

    x, w, r = ready(X), ready(W), ready(R)
    states, gates, grad_y = ready(_STATES), optional(_GATES), optional(_GRAD_Y)
    peepholes = optional(PEEPHOLES) if kind is LSTM else None
    lengths, ended = binding.optional(LENGTHS), None
    if lengths is not None:
        ended = binding.scratch.take((*x.shape[:2], 1), np.bool_)
        calls.append(beyond_lengths(lengths, ended[None]))
        x = _cleared(binding, calls, x, ended)
        grad_y = None if grad_y is None else _cleared(binding, calls, grad_y, ended[:, None])
    return GradOperands(
        x=x,
        w=w,
        r=r,
        states=states,
        gates=gates,
        grad_y=grad_y,
        peepholes=None if peepholes is None else peepholes.reshape(-1, 3, r.shape[2]),
        ended=ended,
        grad_states=(binding.optional(_GRAD_H), binding.optional(_GRAD_C)),
        results=_results(binding, dtype),
    ), tuple(calls)


def _cleared(binding: Binding, calls: list[Call], x: Array, mask: Array) -> Array:
    """A copy of ``x`` that is zero where ``mask``."""
    copy = binding.scratch.take(x.shape, x.dtype)
    calls += [partial(np.copyto, copy, x), partial(np.copyto, copy, 0, where=mask)]
    return copy


def _results(binding: Binding, dtype: np.dtype[Any]) -> dict[int, Array]:
    results: dict[int, Array] = {}
    for index, out in zip(binding.integers("wanted"), binding.outputs, strict=True):
        if out is not None:
            same = out.dtype == dtype
            results[index] = out if same else binding.scratch.take(out.shape, dtype)
    return results


def _stored(binding: Binding, results: dict[int, Array]) -> Iterator[Call]:
    """Conversion to the dtype of the outputs, where that is another."""
    for index, out in zip(binding.integers("wanted"), binding.outputs, strict=True):
        if out is not None and results[index] is not out:
            yield from conversion(out, results[index], binding.scratch)


def _input_chunks(layers: list[LayerGrad], out: Array) -> Iterator[Chunk]:
    """The gradient of X, to which all directions contribute."""
    steps, batch, width = out.shape
    flat = out.reshape(steps * batch, width)

    def share(part: slice) -> Iterator[Call]:
        target = flat[part]
        terms = [term for layer in layers for term in layer.input_terms(part)]
        for index, (left, right) in enumerate(terms):
            if not index:
                yield partial(np.matmul, left, right, out=target)
                product = layers[0].layer.take(target.shape) if len(terms) > 1 else target
                continue
            yield partial(np.matmul, left, right, out=product)
            yield partial(np.add, target, product, out=target)

    columns = sum(len(layer.rows) * layer.rows.shape[2] for layer in layers)
    count = share_count(multiplications=out.size * columns, elements=out.size * len(layers))
    return (partial(share, part) for part in even_slices(len(flat), count))


def _attention_sum(layers: list[LayerGrad], out: Array) -> Iterator[Call]:
    """Minus the sum over directions."""
    parts = [x[..., 0] for layer in layers if layer.attention is not None for x in layer.attention]
    yield partial(negative, parts[0], out=out)
    for part in parts[1:]:
        yield partial(np.subtract, out, part, out=out)


KERNELS: Final[dict[str, Kernel]] = {
    "GRUGrad": _gradient(GRU, gru_backward),
    "LSTMGrad": _gradient(LSTM, lstm_backward),
    "RNNGrad": _gradient(RNN, rnn_backward),
}
