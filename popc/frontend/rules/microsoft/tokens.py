"""Operators of com.microsoft on tokens and keys: hashes, repetitions, distinct values."""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.frontend.node import Node, RuleResult
from popc.frontend.rules.common import Given, standard_op, standard_values
from popc.frontend.rules.microsoft.operators import microsoft_domain
from popc.frontend.rules.moves import emit_slice
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES"]


def _unique(node: Node) -> RuleResult:
    """Distinct values in the order in which they come, the place of each, how many there are."""
    names = node.output_names
    wanted = [names[0], "", *(f"y{index}" if name else "" for index, name in enumerate(names[1:]))]
    y, _, *rest = standard_values(node, "Unique", [node.value(0)], wanted, {"sorted": 0})
    return [y, *rest]


def _without_repetitions(node: Node) -> Tensor:
    """The scores, but -inf for tokens that would end an n-gram of their row of ids again."""
    ids, scores = node.input(0), node.input(1)
    (batch, length), size = ids.type.shape, node.integer("ngram_size")
    if size < 1 or scores.type.rank != 2 or scores.type.shape[0] != batch:
        raise ModelError(f"n-grams of {size} tokens of {ids.type} do not fit {scores.type}")
    count = length - size + 1  # n-grams that there are
    if count < 1:
        return scores
    rows = range(batch)
    last = emit_slice(node, ids, [rows, range(length - size, length)])
    tokens = emit_slice(node, ids, [rows, range(size - 1, length)])
    spacing = (batch, count)
    same = node.constant(np.ones(spacing, np.bool_))
    for place in range(size - 1):
        before = emit_slice(node, ids, [rows, range(place, place + count)])
        end = emit_slice(node, last, [rows, range(place + 1, place + 2)])
        same = node.emit("And", [same, node.emit("Equal", [before, end])])
    least, most = (node.constant(sign * np.inf, scores.type.dtype) for sign in (-1, 1))
    limits = node.emit("Where", [same, least, most])
    attributes: dict[str, Given] = {"axis": 1, "reduction": "min"}
    return standard_op(node, "ScatterElements", [scores, tokens, limits], attributes)


# -- hashes ----------------------------------------------------------------------------------------

_HASHED: Final = {
    DType.INT32: 1, DType.UINT32: 1, DType.FLOAT32: 1,
    DType.INT64: 2, DType.UINT64: 2, DType.FLOAT64: 2,
}  # fmt: skip


def _murmur_hash(node: Node) -> Tensor:
    """MurmurHash3_x86_32 (Appleby) of the four or eight bytes of each element."""
    x = node.input(0)
    if x.type.dtype not in _HASHED:
        raise ModelError(f"elements of {x.type} have no hash here")
    state = _number(node, node.integer("seed", 0))
    words = _HASHED[x.type.dtype]
    for word in _words(node, x, words):
        mixed = _times(node, word, 0xCC9E2D51)
        mixed = _times(node, _turned(node, mixed, 15), 0x1B873593)
        state = _turned(node, node.emit("BitwiseXor", [state, mixed]), 13)
        state = node.emit("Add", [_times(node, state, 5), _number(node, 0xE6546B64)])
    state = node.emit("BitwiseXor", [state, _number(node, 4 * words)])
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = node.emit("BitwiseXor", [state, _shifted(node, state, shift, "RIGHT")])
        state = _times(node, state, factor)
    if node.integer("positive", 1):
        return state
    return node.emit("BitCast", [state], {"to": DType.INT32.value})


def _words(node: Node, x: Tensor, count: int) -> list[Tensor]:
    """The bits of elements in words of 32, low ones first."""
    whole = DType.UINT32 if count == 1 else DType.UINT64
    bits = x if x.type.dtype is whole else node.emit("BitCast", [x], {"to": whole.value})
    if count == 1:
        return [bits]
    low = node.emit("BitwiseAnd", [bits, node.constant(0xFFFFFFFF, DType.UINT64)])
    high = node.emit("BitShift", [bits, node.constant(32, DType.UINT64)], {"direction": "RIGHT"})
    return [node.emit("Cast", [word], {"to": DType.UINT32.value}) for word in (low, high)]


def _number(node: Node, value: int) -> Tensor:
    return node.constant(np.uint32(value & 0xFFFFFFFF))


def _times(node: Node, x: Tensor, factor: int) -> Tensor:
    return x if factor == 1 else node.emit("Mul", [x, _number(node, factor)])


def _shifted(node: Node, x: Tensor, count: int, direction: str) -> Tensor:
    return node.emit("BitShift", [x, _number(node, count)], {"direction": direction})


def _turned(node: Node, x: Tensor, count: int) -> Tensor:
    """Bits that leave on the left come back on the right."""
    parts = [_shifted(node, x, count, "LEFT"), _shifted(node, x, 32 - count, "RIGHT")]
    return node.emit("BitwiseOr", parts)


RULES: Final = microsoft_domain(
    {
        "MurmurHash3": _murmur_hash,
        "NGramRepeatBlock": _without_repetitions,
        "Unique": _unique,
    }
)
