"""Keys that a query may attend to: mask operand, causality, windows, lengths of sequences.

Everything becomes one bias that is added to the scores: 0 or the value of a float mask where a key
is visible, -inf where it is not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call

__all__ = ["AttentionMask", "attention_mask"]

_Slices: TypeAlias = "tuple[slice, slice, slice, slice]"
_Shape: TypeAlias = "tuple[int, int, int, int]"


@dataclass(frozen=True, slots=True)
class AttentionMask:
    """The bias of the scores, and the rows that see no key at all (whose result is zero).

    Attributes:
        bias: Broadcast to the scores, or ``None`` if nothing is masked.
        dead: Broadcast to the scores with one key, or ``None`` if no row can be dead.
        frontier: Row ``i`` sees no key beyond ``i + frontier``; ``None``: no such bound.
    """

    bias: Array | None = None
    dead: Array | None = None
    frontier: int | None = None

    def grouped(self, kv_heads: int) -> AttentionMask:
        """The same for scores [B, kv head, group, S, T] instead of [B, H, S, T]."""
        if self.bias is None:
            return self
        batch, heads, rows, keys = self.bias.shape
        shape = (batch, kv_heads, heads // kv_heads, rows)
        dead = None if self.dead is None else self.dead.reshape(*shape, 1)
        return replace(self, bias=self.bias.reshape(*shape, keys), dead=dead)

    def visible_keys(self, rows: slice, keys: int, *, whole: bool) -> int:
        """The number of leading keys that the block of ``rows`` needs (``whole``: all of them)."""
        if whole or self.frontier is None or rows.stop is None:
            return keys
        return min(keys, max(1, int(rows.stop) + self.frontier))

    def bias_of(self, unit: _Slices, keys: int) -> Array | None:
        """The bias of one block."""
        return None if self.bias is None else self.bias[unit][..., :keys]

    def dead_of(self, unit: _Slices) -> Array | None:
        """The dead rows of one block."""
        return None if self.dead is None else self.dead[unit]


@dataclass(frozen=True, slots=True)
class _Rule:
    """Keys that are visible by position, as ONNX Attention-25 defines it.

    The query in row ``i`` has the absolute position ``i + offset``.
    """

    rows: int
    keys: int
    causal: bool
    left: int
    right: int

    @property
    def reach(self) -> int | None:
        """The reach of a query beyond its own position; ``None``: without bound."""
        bounds = [0] * self.causal + [self.right] * (self.right >= 0)
        return min(bounds, default=None)

    @property
    def restricts(self) -> bool:
        """True if any position may be hidden."""
        return self.reach is not None or self.left >= 0

    def visible(self, offset: Array) -> Array:
        """The mask as bool [..., rows, keys] for an offset, or one per sample: [B, 1, 1, 1]."""
        distance = np.arange(self.keys) - np.arange(self.rows)[:, None] - offset
        result = np.ones(distance.shape, np.bool_)
        if self.reach is not None:
            result &= distance <= self.reach
        if self.left >= 0:
            result &= distance >= -self.left
        return result


def attention_mask(
    binding: Binding, shape: _Shape, dtype: np.dtype[Any]
) -> tuple[AttentionMask, list[Call]]:
    """The mask for scores [B, H, S, T], and the calls that compute it.

    Operand 3 is the mask (bool, or a float to add), operand 4 the int64 lengths [B] of the keys.
    """
    mask, lengths = binding.optional(3), binding.optional(4)
    offset = binding.integer("offset", 0)
    rule = _Rule(
        rows=shape[2],
        keys=shape[3],
        causal=bool(binding.integer("causal", 0)),
        left=binding.integer("left_window", -1),
        right=binding.integer("right_window", -1),
    )
    if mask is None and lengths is None and not rule.restricts:
        return AttentionMask(), []
    frontier = None if lengths is not None or rule.reach is None else rule.reach + offset
    compute = partial(_bias, mask, lengths, rule, offset, dtype)
    if all(binding.inputs[i] is None or binding.is_constant(i) for i in _present(binding)):
        bias = compute()
        dead = np.isneginf(bias.max(-1, keepdims=True))
        return _broadcast(bias, dead if dead.any() else None, shape, frontier), []
    calls: list[Call] = []
    if mask is not None and mask.dtype == dtype and lengths is None and not rule.restricts:
        bias = mask
    else:
        bias = binding.scratch.take(compute().shape, dtype)
        calls.append(lambda: np.copyto(bias, compute()))
    peaks = binding.scratch.take((*bias.shape[:-1], 1), dtype)
    dead = binding.scratch.take(peaks.shape, np.bool_)
    calls += [
        partial(np.maximum.reduce, bias, -1, None, peaks, keepdims=True),
        partial(np.isneginf, peaks, out=dead),
    ]
    return _broadcast(bias, dead, shape, frontier), calls


def _present(binding: Binding) -> range:
    """Indices of the mask and the lengths, as far as there are operands."""
    return range(3, min(5, len(binding.inputs)))


def _broadcast(
    bias: Array, dead: Array | None, shape: _Shape, frontier: int | None
) -> AttentionMask:
    whole = None if dead is None else np.broadcast_to(dead, (*shape[:3], 1))
    return AttentionMask(np.broadcast_to(bias, shape), whole, frontier)


def _bias(
    mask: Array | None, lengths: Array | None, rule: _Rule, offset: int, dtype: np.dtype[Any]
) -> Array:
    """The addend of the scores; broadcasts to [B, H, S, T]."""
    ends = None if lengths is None else lengths.reshape(-1, 1, 1, 1)
    # With lengths, queries are the last tokens of each sequence.
    visible = rule.visible(np.asarray(offset) if ends is None else ends - rule.rows)
    if ends is not None:
        visible = visible & (np.arange(rule.keys) < ends)
    if mask is not None and mask.dtype == np.bool_:
        visible = visible & mask
    value = np.zeros((), dtype) if mask is None or mask.dtype == np.bool_ else mask
    return np.where(visible, value, dtype.type(-np.inf)).astype(dtype, copy=False)
