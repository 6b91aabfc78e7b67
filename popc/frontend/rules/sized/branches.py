"""Results of branches that have different sizes: padded to the largest, with the size beside."""

from __future__ import annotations

from collections.abc import Sequence

from popc.frontend.node import Node
from popc.frontend.open_graph import OpenGraph
from popc.frontend.problems import AlreadyReported, DataDependent
from popc.frontend.rules.sized.node import SizedNode, sized
from popc.frontend.values import SizedValue, Unknown, Value
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.ground.frozen import frozen

__all__ = ["Branches", "united"]


@frozen
class Branches:
    """The results of branches as tensors of the same types.

    Attributes:
        tensors: Of each branch, in order: each result, and behind it its sizes.
        axes: Of each result, the axes with a size that differs.
    """

    tensors: tuple[list[Tensor], ...]
    axes: tuple[tuple[int, ...], ...]

    def values(self, node: Node, outputs: Sequence[Tensor]) -> list[Value]:
        """The results of the whole, from those of its op."""
        left = iter(outputs)
        found: list[Value] = []
        for axes in self.axes:
            padded = next(left)
            counts: list[Tensor | None] = [None] * padded.type.rank
            for axis in axes:
                count = next(left)
                node.importer.context.sizes.limit(count, padded.type.shape[axis])
                counts[axis] = count
            found.append(SizedValue(padded, tuple(counts)) if axes else padded)
        return found


def united(
    node: Node, bodies: Sequence[OpenGraph], results: Sequence[Sequence[Value | None]]
) -> Branches:
    """The results of two branches.

    Raises:
        AlreadyReported: one of them has not been imported.
        DataDependent: they differ in more than sizes.
    """
    if any(isinstance(value, Unknown) for values in results for value in values):
        raise AlreadyReported
    tensors: tuple[list[Tensor], ...] = tuple([] for _ in bodies)
    found: list[tuple[int, ...]] = []
    for values in zip(*results, strict=True):
        parts = [_tensor_of(value) for value in values]
        axes = _different_axes(parts)
        for own, body, part in zip(tensors, bodies, parts, strict=True):
            largest = [
                max(dims) for dims in zip(*(p.padded.type.shape for p in parts), strict=True)
            ]
            own.extend(_spread(SizedNode.within_body(node, body), part, axes, largest))
        found.append(axes)
    return Branches(tensors, tuple(found))


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
