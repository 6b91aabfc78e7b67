"""Scaled dot-product attention, and rotary embedding.

Attention runs in blocks of heads (or of query rows) whose scores stay in L2.  The softmax is left
without its division: the result, which is narrower than the scores, is divided instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.attention_mask import AttentionMask, attention_mask
from popc_runtime.kernels.binding import Binding, Call, Calls, Kernel, Scratch
from popc_runtime.kernels.parallel import parallel_calls
from popc_runtime.kernels.sharing import even_slices, share_count
from popc_runtime.kernels.softmax import exponentials

__all__ = ["KERNELS"]

_BLOCK: Final = 1 << 16  # scores of one block
_PASSES: Final = 6  # over the scores; an exponential counts as three
_FEWEST_ROWS: Final = 32  # below this, matrix products lose more than the cache gains

_Slices: TypeAlias = "tuple[slice, slice, slice, slice]"


@dataclass(frozen=True, slots=True)
class _Problem:
    """Attention over [batch, kv head, group of query heads, row, ...].

    Attributes:
        q, out: [B, Hk, G, S, D] and [B, Hk, G, S, Dv]; any strides.
        k, v: [B, Hk, T, D] and [B, Hk, T, Dv], in the dtype of the computation.
        scores: [B, Hk, G, S, T]: where to store the product at stage ``mode``, or ``None``.
        mask: What is added to the scores, shaped [B, Hk, G, S, T].
    """

    q: Array
    k: Array
    v: Array
    out: Array
    scores: Array | None
    mode: int
    mask: AttentionMask
    scale: float
    softcap: float

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.k.dtype


def _attention(binding: Binding) -> Calls:
    """softmax(scale * Q K^T + mask) V; see the op table for operands and attributes."""
    out = binding.output()
    if out.size == 0 or binding.input(1).shape[2] == 0:
        return partial(out.fill, 0)
    problem, calls = _set_up(binding, out)
    units = list(_units(problem))
    scores = out.size // problem.v.shape[3] * problem.k.shape[2]
    depth = problem.k.shape[3] + problem.v.shape[3]
    shares = share_count(multiplications=scores * depth, elements=_PASSES * scores, most=len(units))
    chunks = [
        partial(_some_units, problem, units[part], binding.scratch)
        for part in even_slices(len(units), shares)
    ]
    return (*calls, *parallel_calls(binding.scratch, chunks))


def _some_units(problem: _Problem, units: Sequence[_Slices], scratch: Scratch) -> Iterator[Call]:
    """Units one after another, with the same temporaries."""
    mark = scratch.mark()
    for unit in units:
        scratch.rewind(mark)
        yield from _unit_calls(problem, unit, scratch)


def _set_up(binding: Binding, out: Array) -> tuple[_Problem, list[Call]]:
    q, k, v = (binding.input(index) for index in range(3))
    dtype = np.dtype(np.float64 if q.dtype == np.float64 else np.float32)
    k, calls = _multipliable(k, dtype, binding.scratch)
    v, more = _multipliable(v, dtype, binding.scratch)
    if binding.integer("heads_last", 0):
        out = out.transpose(0, 2, 1, 3)
    batch, heads, rows, _ = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    mask, prepare = attention_mask(binding, (batch, heads, rows, keys), dtype)
    grouped = (batch, kv_heads, heads // kv_heads, rows)
    mode = binding.integer("scores", -1)
    problem = _Problem(
        q=q.reshape(*grouped, q.shape[3]),
        k=k,
        v=v,
        out=out.reshape(*grouped, v.shape[3]),
        scores=None if mode < 0 else binding.output(1).reshape(*grouped, keys),
        mode=mode,
        mask=mask.grouped(kv_heads),
        scale=binding.number("scale"),
        softcap=binding.number("softcap", 0.0),
    )
    return problem, [*calls, *more, *prepare]


def _multipliable(x: Array, dtype: np.dtype[Any], scratch: Scratch) -> tuple[Array, list[Call]]:
    """``x`` in a form that BLAS takes: the dtype of the computation, unit stride in one axis."""
    if x.dtype == dtype and x.itemsize in x.strides[-2:]:
        return x, []
    copy = scratch.take(x.shape, dtype)
    return copy, [partial(np.copyto, copy, x)]


def _units(problem: _Problem) -> Iterator[_Slices]:
    """(batch, kv heads, heads in a group, rows) of blocks, as large as fit."""
    batch, kv_heads, group, rows, _ = problem.q.shape
    keys = max(problem.k.shape[2], 1)
    per_kv_head = group * rows * keys
    everything = slice(None)
    if 2 * kv_heads * per_kv_head <= _BLOCK:
        for part in _pieces(batch, _BLOCK // (kv_heads * per_kv_head)):
            yield part, everything, everything, everything
        return
    for image in _pieces(batch, 1):
        if per_kv_head <= _BLOCK:
            for heads in _pieces(kv_heads, _BLOCK // per_kv_head):
                yield image, heads, everything, everything
            continue
        for index in range(kv_heads * group):
            kv_head, member = divmod(index, group)
            for part in _pieces(rows, max(_FEWEST_ROWS, _BLOCK // keys)):
                yield image, slice(kv_head, kv_head + 1), slice(member, member + 1), part


def _pieces(size: int, most: int) -> Iterator[slice]:
    """``range(size)`` in as few, nearly equal pieces as a maximum length allows."""
    count = -(-size // min(most, size))
    for index in range(count):
        yield slice(size * index // count, size * (index + 1) // count)


def _unit_calls(problem: _Problem, unit: _Slices, scratch: Scratch) -> list[Call]:
    q, out = problem.q[unit], problem.out[unit]
    keys = problem.mask.visible_keys(unit[3], problem.k.shape[2], whole=problem.scores is not None)
    k, v = (array[unit[0], unit[1], :keys] for array in (problem.k, problem.v))
    batch, heads, group, rows, depth = q.shape
    wide = scratch.take(q.shape, problem.dtype)
    scores = scratch.take((batch, heads, group, rows, keys), problem.dtype)
    flat = (batch, heads, group * rows)
    scale = problem.dtype.type(problem.scale / (problem.softcap or 1.0))
    return [
        partial(np.multiply, q, scale, out=wide),
        partial(
            np.matmul,
            wide.reshape(*flat, depth),
            k.swapaxes(-1, -2),
            out=scores.reshape(*flat, keys),
        ),
        *_biased(problem, unit, scores),
        *_weighted(problem, unit, scores, v, out, scratch),
    ]


def _biased(problem: _Problem, unit: _Slices, scores: Array) -> list[Call]:
    """Soft capping and the mask, in place; scores are stored after the stage asked for."""
    calls: list[Call] = []
    stored = None if problem.scores is None else problem.scores[unit]
    cap = problem.dtype.type(problem.softcap)
    if problem.softcap:
        if stored is not None and problem.mode == 0:
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
    if problem.mode in (0, 1):
        return [*calls, *copy, *add]
    return [*calls, *add, *(copy if problem.mode == 2 else [])]


def _weighted(
    problem: _Problem, unit: _Slices, scores: Array, v: Array, out: Array, scratch: Scratch
) -> list[Call]:
    """Calls for ``out = softmax(scores) @ v``, zero for rows that may see no key."""
    batch, heads, group, rows, keys = scores.shape
    powers = scratch.take(scores.shape, scores.dtype)
    sums = scratch.take((batch, heads, group, rows, 1), scores.dtype)
    result = scratch.take(out.shape, scores.dtype)
    flat = (batch, heads, group * rows)
    lines = (sums.size, keys, 1)
    dead = problem.mask.dead_of(unit)
    calls: list[Call] = [
        exponentials(
            scores.reshape(lines), powers.reshape(lines), sums.reshape(-1, 1, 1), scratch, zero=True
        )
    ]
    if problem.mode == 3 and problem.scores is not None:
        stored = problem.scores[unit]
        calls.append(partial(np.divide, powers, sums, out=stored, casting="same_kind"))
        calls += _cleared(stored, dead)
    return [
        *calls,
        partial(np.matmul, powers.reshape(*flat, keys), v, out=result.reshape(*flat, -1)),
        partial(np.divide, result, sums, out=out, casting="same_kind"),
        *_cleared(out, dead),
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
