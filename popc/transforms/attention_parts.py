"""Forms in which exporters write parts of attention."""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.ir import Graph, Op, Tensor
from popc.transforms.match import is_exactly, only_user, produced_by

__all__ = ["sole_softmax", "untransposed", "without_padding", "without_repeated_heads"]

_GROUPED: Final = 5  # dimensions of [batch, key heads, repetitions, keys, depth]


def sole_softmax(graph: Graph, weights: Tensor) -> Op | None:
    """The Softmax that gives the weights, perhaps with 0 in place of NaN, to one reader alone."""
    if only_user(graph, weights) is None:
        return None
    chosen = produced_by(weights, "Where")
    if chosen is None:
        return produced_by(weights, "Softmax")
    test, plain = produced_by(chosen.operand(0), "IsNaN"), chosen.operand(2)
    if test is None or test.operand(0) is not plain or not is_exactly(chosen.operand(1), 0):
        return None
    readers = set(plain.uses) == {test, chosen} and only_user(graph, test.output) is chosen
    return produced_by(plain, "Softmax") if readers and not graph.is_output(plain) else None


def without_padding(
    graph: Graph, tensor: Tensor, fill: float, axis: int
) -> tuple[Tensor, Tensor | None]:
    """``tensor`` as it is before ``fill`` replaces all from a place on, and that place.

    The places lie along ``axis``, which counts from the end.  ``None``: nothing is replaced.
    """
    chosen = produced_by(tensor, "Where")
    if chosen is None or only_user(graph, tensor) is None:
        return tensor, None
    mask, plain = chosen.operand(0), chosen.operand(1)
    shape, length = mask.type.shape, tensor.type.shape[axis]
    lies_along = len(shape) >= -axis and shape[axis] == mask.type.size == length
    replaces = is_exactly(chosen.operand(2), fill) and plain.type == tensor.type
    count = _places_before(mask) if lies_along and replaces else None
    return (tensor, None) if count is None else (plain, count)


def _places_before(mask: Tensor) -> Tensor | None:
    """The number of places that ``mask`` is true for: the first ones."""
    moved = produced_by(mask, "Reshape")
    test = produced_by(mask if moved is None else moved.operand(0), "Less")
    if test is None or test.output.type.rank != 1:
        return None
    places, count = test.operand(0), test.operand(1)
    in_order = places.data is not None and np.array_equal(places.data, np.arange(places.type.size))
    return count if in_order and count.type.size == 1 else None


def untransposed(keys: Tensor) -> Tensor | None:
    """A tensor that, reshaped to [..., keys, depth], has ``keys`` [..., depth, keys] as transpose.

    Exporters may take all dimensions in front as one meanwhile.
    """
    inner = produced_by(keys, "Reshape")
    swap = produced_by(keys if inner is None else inner.operand(0), "Transpose")
    if swap is None or swap.output.type.shape[-2:] != keys.type.shape[-2:]:
        return None
    rank = swap.output.type.rank
    if swap.attributes["perm"] != (*range(rank - 2), rank - 1, rank - 2):
        return None
    outer = None if inner is None else produced_by(swap.operand(0), "Reshape")
    return swap.operand(0) if outer is None else outer.operand(0)


def without_repeated_heads(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values before each head was repeated for several heads of queries."""
    own = _unrepeated(keys), _unrepeated(values)
    if own[0] is None or own[1] is None or own[0].type.shape[1] != own[1].type.shape[1]:
        return keys, values
    return own[0], own[1]


def _unrepeated(tensor: Tensor) -> Tensor | None:
    """[B, N, T, D] of which ``tensor`` [B, N * R, T, D] has each head R times in a row."""
    joined = produced_by(tensor, "Reshape")
    spread = None if joined is None else produced_by(joined.operand(0), "Expand")
    if spread is None or spread.output.type.rank != _GROUPED:
        return None
    batch, heads, times, *rest = spread.output.type.shape
    if spread.operand(0).type.shape != (batch, heads, 1, *rest):
        return None
    lifted = produced_by(spread.operand(0), "Reshape")
    own = None if lifted is None else lifted.operand(0)
    fits = own is not None and own.type.shape == (batch, heads, *rest)
    return own if fits and tensor.type.shape == (batch, heads * times, *rest) else None
