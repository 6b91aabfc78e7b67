"""Linear attention: a state of each head that forgets, learns a token, and answers its queries.

Of state [B, N, K, V], tokens of q [T, B, N, queries, K], k [T, B, N, 1, K], v [T, B, N, 1, V],
perhaps decay [T, B, N, 1 or K, 1] and beta [T, B, N, 1, 1]: S = decay S; with beta, the value
becomes beta (v - k S); S += k (outer) v; the answers [T, B, N, queries, V] are q S.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Kernel, pure

__all__ = ["KERNELS"]

_DECAY, _BETA = 4, 5  # operands


def _turned(matrices: Array) -> Array:
    return np.swapaxes(matrices, -1, -2)


def _forward(binding: Binding) -> tuple[list[Array], list[Array], list[Array]]:
    """The state that has forgotten, what it learns and what it is then, of each token."""
    state, _, k, v = (binding.input(index) for index in range(4))
    decay, beta = binding.optional(_DECAY), binding.optional(_BETA)
    faded, learnt, states = [], [], [state]
    for t in range(len(k)):
        faded.append(states[-1] if decay is None else states[-1] * decay[t])
        learnt.append(v[t] if beta is None else beta[t] * (v[t] - k[t] @ faded[-1]))
        states.append(faded[-1] + _turned(k[t]) * learnt[-1])
    return faded, learnt, states


def _attention(binding: Binding) -> tuple[Array, Array]:
    q = binding.input(1)
    _, _, states = _forward(binding)
    answers = np.empty((*q.shape[:-1], states[0].shape[-1]), q.dtype)
    for t, queries in enumerate(q):
        np.matmul(queries, states[t + 1], out=answers[t])
    return answers, states[-1]


def _gradient(binding: Binding) -> tuple[Array, ...]:
    """The operands, and the gradients of both results -> those of the operands in ``wanted``."""
    _, q, k, v = (binding.input(index) for index in range(4))
    decay, beta = binding.optional(_DECAY), binding.optional(_BETA)
    slopes, last = binding.input(6), binding.input(7)
    faded, learnt, states = _forward(binding)
    found = [np.zeros_like(each) if each is not None else q for each in binding.inputs[:6]]
    slope = last
    for t in reversed(range(len(k))):
        slope = slope + _turned(q[t]) @ slopes[t]
        found[1][t] = slopes[t] @ _turned(states[t + 1])
        found[2][t] = learnt[t] @ _turned(slope)
        of_learnt = k[t] @ slope
        if beta is not None:
            news = v[t] - k[t] @ faded[t]
            found[_BETA][t] = (of_learnt * news).sum(-1, keepdims=True)
            of_learnt = of_learnt * beta[t]
            found[2][t] -= of_learnt @ _turned(faded[t])
            slope = slope - _turned(k[t]) @ of_learnt
        found[3][t] = of_learnt
        if decay is not None:
            rows = (slope * states[t]).sum(-1, keepdims=True)
            each = rows if decay.shape[-2] > 1 else rows.sum(-2, keepdims=True)
            found[_DECAY][t] = each
            slope = slope * decay[t]
    found[0] = slope
    return tuple(found[index] for index in binding.integers("wanted"))


KERNELS: Final[dict[str, Kernel]] = {
    "LinearAttention": pure(_attention),
    "LinearAttentionGrad": pure(_gradient),
}
