"""Scaled dot-product attention, and rotary embedding.

The softmax is left without its division: the result, which is narrower than the scores, is divided
instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, Scratch
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.sharing import even_slices, share_count
from popc_runtime.kernels.parts.attention_problem import AttentionProblem, Unit, set_up, units
from popc_runtime.kernels.softmax import exponentials

__all__ = ["KERNELS"]

_PASSES: Final = 6  # over the scores; an exponential counts as three


@dataclass(frozen=True, slots=True)
class _Results:
    """The arrays that results are written to.

    Attributes:
        out: [B, Hk, G, S, Dv]; any strides.
        scores: [B, Hk, G, S, T]: where to store the product at stage ``mode``, or ``None``.
        sinks: [Hk, G]: a score more of each head, or ``None``.
    """

    out: Array
    scores: Array | None
    mode: int
    sinks: Array | None


def _attention(binding: Binding) -> Calls:
    """softmax(scale * Q K^T + mask) V; see the op table for operands and attributes."""
    out, mode = binding.output(), binding.integer("scores", -1)
    wanted = (out,) if mode < 0 else (out, binding.output(1))
    if not any(result.size for result in wanted) or binding.input(1).shape[2] == 0:
        return partial(out.fill, 0)
    problem, calls = set_up(binding)
    keys = problem.k.shape[2]
    scores = None if mode < 0 else binding.output(1).reshape(*problem.q.shape[:4], keys)
    sinks = binding.optional(5)
    sinks = None if sinks is None else sinks.reshape(problem.q.shape[1:3])
    results = _Results(problem.by_head(out), scores, mode, sinks)
    blocks = list(units(problem))
    count = prod(problem.q.shape[:4]) * keys
    depth = problem.k.shape[3] + problem.v.shape[3]
    shares = share_count(multiplications=count * depth, elements=_PASSES * count, most=len(blocks))
    chunks = [
        partial(_some_units, problem, results, blocks[part], binding.scratch)
        for part in even_slices(len(blocks), shares)
    ]
    return (*calls, *parallel_calls(binding.scratch, chunks))


def _some_units(
    problem: AttentionProblem, results: _Results, blocks: Sequence[Unit], scratch: Scratch
) -> Iterator[Call]:
    """Units one after another, with the same temporaries."""
    mark = scratch.mark()
    for unit in blocks:
        scratch.rewind(mark)
        keys = problem.visible_keys(unit, whole=results.scores is not None)
        _, scores, calls = problem.products(unit, keys, scratch)
        yield from calls
        yield from _biased(problem, results, unit, scores)
        yield from _weighted(problem, results, unit, scores, scratch)


def _biased(problem: AttentionProblem, results: _Results, unit: Unit, scores: Array) -> list[Call]:
    """Soft capping and the mask, in place; scores are stored after the stage asked for."""
    calls: list[Call] = []
    stored = None if results.scores is None else results.scores[unit]
    cap = problem.dtype.type(problem.softcap)
    if problem.softcap:
        if stored is not None and results.mode == 0:
            calls.append(partial(np.multiply, scores, cap, out=stored, casting="same_kind"))
            stored = None
        calls += [
            partial(np.tanh, scores, out=scores),
            partial(np.multiply, scores, cap, out=scores),
        ]
    copy: list[Call] = []
    if stored is not None:
        copy.append(partial(np.copyto, stored, scores, casting="same_kind"))
    bias = problem.mask.bias_of(unit, scores.shape[-1])
    add: list[Call] = [] if bias is None else [partial(np.add, scores, bias, out=scores)]
    if results.mode in (0, 1):
        return [*calls, *copy, *add]
    return [*calls, *add, *(copy if results.mode == 2 else [])]


def _weighted(
    problem: AttentionProblem, results: _Results, unit: Unit, scores: Array, scratch: Scratch
) -> list[Call]:
    """Calls for ``out = softmax(scores) @ v``, zero for rows that may see no key."""
    batch, heads, group, rows, keys = scores.shape
    out, v = results.out[unit], problem.v[unit[0], unit[1], :keys]
    scores, calls = _with_sinks(results, unit, scores, scratch)
    columns = scores.shape[-1]
    powers = scratch.take(scores.shape, scores.dtype)
    sums = scratch.take((batch, heads, group, rows, 1), scores.dtype)
    result = scratch.take(out.shape, scores.dtype)
    flat = (batch, heads, group * rows)
    lines = (sums.size, columns, 1)
    dead = problem.mask.dead_of(unit)
    calls.append(
        exponentials(
            scores.reshape(lines), powers.reshape(lines), sums.reshape(-1, 1, 1), scratch, zero=True
        )
    )
    if results.mode == 3 and results.scores is not None:
        stored = results.scores[unit]
        calls.append(partial(np.divide, powers[..., :keys], sums, out=stored, casting="same_kind"))
        calls += _cleared(stored, dead)
    weights = powers.reshape(*flat, columns)[..., :keys]
    return [
        *calls,
        partial(np.matmul, weights, v, out=result.reshape(*flat, -1)),
        partial(np.divide, result, sums, out=out, casting="same_kind"),
        *_cleared(out, dead),
    ]


def _with_sinks(
    results: _Results, unit: Unit, scores: Array, scratch: Scratch
) -> tuple[Array, list[Call]]:
    """The scores, with the sink of their head behind them if there is one."""
    if results.sinks is None:
        return scores, []
    keys = scores.shape[-1]
    wide = scratch.take((*scores.shape[:-1], keys + 1), scores.dtype)
    sinks = results.sinks[unit[1], unit[2], np.newaxis]
    return wide, [
        partial(np.copyto, wide[..., :keys], scores),
        partial(np.copyto, wide[..., keys], sinks),
    ]


def _cleared(x: Array, dead: Array | None) -> list[Call]:
    return [] if dead is None else [partial(np.copyto, x, 0, where=dead)]


def _rotary_embedding(binding: Binding) -> Calls:
    """Rotate pairs of the first elements of the last axis; cos and sin broadcast to half of it."""
    x, cosine, sine = (binding.input(index) for index in range(3))
    out = binding.output()
    half = cosine.shape[-1]
    if binding.integer("interleaved", 0):
        first, second = (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
    else:
        first, second = (slice(0, half), slice(half, 2 * half))
    a, b, real, imaginary = x[..., first], x[..., second], out[..., first], out[..., second]
    dtype = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    left, right = (binding.scratch.take(a.shape, dtype) for _ in range(2))
    rest = slice(2 * half, None)
    return (
        partial(np.multiply, a, cosine, out=left, dtype=dtype),
        partial(np.multiply, b, sine, out=right, dtype=dtype),
        partial(np.subtract, left, right, out=real, casting="same_kind"),
        partial(np.multiply, a, sine, out=left, dtype=dtype),
        partial(np.multiply, b, cosine, out=right, dtype=dtype),
        partial(np.add, left, right, out=imaginary, casting="same_kind"),
        partial(np.copyto, out[..., rest], x[..., rest]),
    )


KERNELS: Final[dict[str, Kernel]] = {
    "Attention": _attention,
    "RotaryEmbedding": _rotary_embedding,
}
