"""Results of branches that have different sizes: padded to the largest, with the size beside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeGuard

from popc.frontend.node import Node
from popc.frontend.open_graph import OpenGraph
from popc.frontend.problems import AlreadyReported, DataDependent
from popc.frontend.rules.sized.node import SizedNode, sized
from popc.frontend.values import SequenceValue, SizedValue, Unknown, Value
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.ground.frozen import frozen

__all__ = ["Branches", "united"]


@frozen
class Branches:
    """The results of branches as tensors of the same types.

    Attributes:
        tensors: Of each branch, in order: each result, and behind it its sizes.  Elements of a
            sequence are results.
        axes: Of each of these results, the axes with a size that differs.
        sequences: What a branch returns as a sequence, in its place among all that it returns.
    """

    tensors: tuple[list[Tensor], ...]
    axes: tuple[tuple[int, ...], ...]
    sequences: tuple[SequenceValue | None, ...]

    def values(self, node: Node, outputs: Sequence[Tensor]) -> list[Value]:
        """The results of the whole, from those of its op."""
        left = iter(outputs)
        results = iter([_value(node, axes, left) for axes in self.axes])
        return [
            next(results)
            if sequence is None
            else SequenceValue(tuple(next(results) for _ in sequence.items), sequence.dtype)
            for sequence in self.sequences
        ]


def _value(node: Node, axes: Sequence[int], left: Iterator[Tensor]) -> Value:
    padded = next(left)
    counts: list[Tensor | None] = [None] * padded.type.rank
    for axis in axes:
        count = next(left)
        node.importer.context.sizes.limit(count, padded.type.shape[axis])
        counts[axis] = count
    return SizedValue(padded, tuple(counts)) if axes else padded


def united(
    node: Node, bodies: Sequence[OpenGraph], results: Sequence[Sequence[Value | None]]
) -> Branches:
    """The results of two branches.

    Raises:
        AlreadyReported: one of them has not been imported.
        DataDependent: they differ in more than sizes.
    """
    together = list(zip(*results, strict=True))
    single = [values for several in together for values in _elements(several)]
    if any(isinstance(value, Unknown) for values in single for value in values):
        raise AlreadyReported
    tensors: tuple[list[Tensor], ...] = tuple([] for _ in bodies)
    found: list[tuple[int, ...]] = []
    for values in single:
        parts = [_tensor_of(value) for value in values]
        axes = _different_axes(parts)
        for own, body, part in zip(tensors, bodies, parts, strict=True):
            largest = [
                max(dims) for dims in zip(*(p.padded.type.shape for p in parts), strict=True)
            ]
            own.extend(_spread(SizedNode.within_body(node, body), part, axes, largest))
        found.append(axes)
    sequences = (values[0] if _are_sequences(values) else None for values in together)
    return Branches(tensors, tuple(found), tuple(sequences))


def _are_sequences(values: Sequence[Value | None]) -> TypeGuard[Sequence[SequenceValue]]:
    return all(isinstance(value, SequenceValue) for value in values)


def _elements(values: Sequence[Value | None]) -> Sequence[Sequence[Value | None]]:
    """The results of branches in one place: element by element, if they are sequences."""
    if not _are_sequences(values):
        return [values]
    lengths = [len(value.items) for value in values]
    if len(set(lengths)) > 1:
        raise DataDependent(
            f"If: the branches return sequences of {' and '.join(map(str, lengths))} elements, "
            "and the condition is known at run time only"
        )
    return list(zip(*(value.items for value in values), strict=True))


def _tensor_of(value: Value | None) -> SizedValue:
    try:
        return sized(value)
    except ModelError:
        what = "sequences and optionals must be resolved at compile time"
        raise DataDependent(f"If: {what}") from None


def _different_axes(parts: Sequence[SizedValue]) -> tuple[int, ...]:
    """The axes along which sizes differ, or data decides them."""
    first = parts[0].padded.type
    if any((p.padded.type.rank, p.padded.type.dtype) != (first.rank, first.dtype) for p in parts):
        raise DataDependent(
            "If: the branches return different shapes, and the condition is known at run time only"
        )
    return tuple(
        axis
        for axis in range(first.rank)
        if any(part.counts[axis] is not None for part in parts)
        or len({part.padded.type.shape[axis] for part in parts}) > 1
    )


def _spread(
    node: SizedNode, part: SizedValue, axes: Sequence[int], largest: Sequence[int]
) -> list[Tensor]:
    """A result with room for the largest, and its sizes along ``axes``."""
    padded = part.padded
    for axis in axes:
        padded = node.cropped(padded, axis, largest[axis])
    return [padded, *(node.count(part, axis) for axis in axes)]
