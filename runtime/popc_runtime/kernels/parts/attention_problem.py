"""Common parts of attention and its gradient: operands by head, blocks, scores.

Both run in blocks of heads (or of query rows) whose scores stay in L2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Scratch
from popc_runtime.kernels.parts.attention_mask import AttentionMask, attention_mask

__all__ = ["AttentionProblem", "Unit", "multipliable", "pieces", "set_up", "units"]

_BLOCK: Final = 1 << 16  # scores of one block
_FEWEST_ROWS: Final = 32  # below this, matrix products lose more than the cache gains

# (batch, kv heads, heads in a group, rows) of a block
Unit: TypeAlias = "tuple[slice, slice, slice, slice]"


@dataclass(frozen=True, slots=True)
class AttentionProblem:
    """Attention over [batch, kv head, group of query heads, row, ...].

    Attributes:
        q: [B, Hk, G, S, D]; any strides.
        k, v: [B, Hk, T, D] and [B, Hk, T, Dv], in the dtype of the computation.
        mask: What is added to the scores, shaped [B, Hk, G, S, T].
        heads_last: Results are [B, S, H, Dv] instead of [B, H, S, Dv].
    """

    q: Array
    k: Array
    v: Array
    mask: AttentionMask
    scale: float
    softcap: float
    heads_last: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the computation."""
        return self.k.dtype

    def by_head(self, results: Array) -> Array:
        """Results of attention, or values of their shape, as [B, Hk, G, S, Dv]."""
        if self.heads_last:
            results = results.transpose(0, 2, 1, 3)
        return results.reshape(*self.q.shape[:4], results.shape[-1])

    def visible_keys(self, unit: Unit, *, whole: bool = False) -> int:
        """The number of leading keys that a block needs (``whole``: all of them)."""
        return self.mask.visible_keys(unit[3], self.k.shape[2], whole=whole)

    def products(self, unit: Unit, keys: int, scratch: Scratch) -> tuple[Array, Array, list[Call]]:
        """Scaled queries, their products with the first ``keys``, and the calls for both.

        The scale is divided by the soft cap, if there is one.
        """
        q, k = self.q[unit], self.k[unit[0], unit[1], :keys]
        batch, heads, group, rows, depth = q.shape
        wide = scratch.take(q.shape, self.dtype)
        scores = scratch.take((batch, heads, group, rows, keys), self.dtype)
        flat = (batch, heads, group * rows)
        left, right = wide.reshape(*flat, depth), k.swapaxes(-1, -2)
        calls: list[Call] = [
            partial(np.multiply, q, self.dtype.type(self.scale / (self.softcap or 1.0)), out=wide),
            partial(np.matmul, left, right, out=scores.reshape(*flat, keys)),
        ]
        return wide, scores, calls


def set_up(binding: Binding) -> tuple[AttentionProblem, list[Call]]:
    """The problem of the operands q, k, v, mask, lengths, and the calls that prepare it."""
    q, k, v = (binding.input(index) for index in range(3))
    dtype = np.dtype(np.float64 if q.dtype == np.float64 else np.float32)
    k, calls = multipliable(k, dtype, binding.scratch)
    v, more = multipliable(v, dtype, binding.scratch)
    batch, heads, rows, _ = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    mask, prepare = attention_mask(binding, (batch, heads, rows, keys), dtype)
    problem = AttentionProblem(
        q=q.reshape(batch, kv_heads, heads // kv_heads, rows, q.shape[3]),
        k=k,
        v=v,
        mask=mask.grouped(kv_heads),
        scale=binding.number("scale"),
        softcap=binding.number("softcap", 0.0),
        heads_last=bool(binding.integer("heads_last", 0)),
    )
    return problem, [*calls, *more, *prepare]


def multipliable(x: Array, dtype: np.dtype[Any], scratch: Scratch) -> tuple[Array, list[Call]]:
    """``x`` in a form that BLAS takes: the dtype of the computation, unit stride in one axis."""
    if x.dtype == dtype and x.itemsize in x.strides[-2:]:
        return x, []
    copy = scratch.take(x.shape, dtype)
    return copy, [partial(np.copyto, copy, x)]


def units(problem: AttentionProblem) -> Iterator[Unit]:
    """Blocks, as large as fit; those of the same batches and kv heads one after another."""
    batch, kv_heads, group, rows, _ = problem.q.shape
    keys = max(problem.k.shape[2], 1)
    per_kv_head = group * rows * keys
    everything = slice(None)
    if 2 * kv_heads * per_kv_head <= _BLOCK:
        for part in pieces(batch, _BLOCK // (kv_heads * per_kv_head)):
            yield part, everything, everything, everything
        return
    for image in pieces(batch, 1):
        if per_kv_head <= _BLOCK:
            for heads in pieces(kv_heads, _BLOCK // per_kv_head):
                yield image, heads, everything, everything
            continue
        for index in range(kv_heads * group):
            kv_head, member = divmod(index, group)
            for part in pieces(rows, max(_FEWEST_ROWS, _BLOCK // keys)):
                yield image, slice(kv_head, kv_head + 1), slice(member, member + 1), part


def pieces(size: int, most: int) -> Iterator[slice]:
    """``range(size)`` in as few, nearly equal pieces as a maximum length allows."""
    count = -(-size // min(most, size))
    for index in range(count):
        yield slice(size * index // count, size * (index + 1) // count)
