"""An op of a graph whose axes are filled up, beside its like in the graph for a smaller size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from popc.ir import Op, Shape, Tensor
from popc.ir.attributes import integer, integers
from popc.padding.lanes import Lane, LaneKind, Lanes
from popc_runtime.format import Array
from popc_runtime.ground.frozen import frozen

__all__ = ["PLAIN", "Fold", "PaddedCase", "PaddingError", "lanes_of_constant"]

# An axis that is filled up may lie between others in one axis of outer * size * inner elements:
# these are the numbers of elements outside and inside of it.
Fold: TypeAlias = "tuple[int, int]"

PLAIN: Final[Fold] = (1, 1)  # an axis by itself


class PaddingError(Exception):
    """An op is not known to leave out what is filled up; says why."""


@frozen
class PaddedCase:
    """An op of the larger graph, and its like in the smaller one.

    Attributes:
        op, small: The two.
        known: What is known of the tensors of the larger graph.
        fold: How the axis that is filled up lies in a tensor.
        sizes: The sizes of the dimension in the two graphs, the smaller one first.
    """

    op: Op
    small: Op
    known: Callable[[Tensor], Lanes]
    fold: Callable[[Tensor], Fold]
    sizes: tuple[int, int]

    @property
    def rank(self) -> int:
        """The rank of the first result."""
        return len(self.op.output.type.shape)

    def lanes(self, index: int) -> Lanes:
        """The facts about an operand; none about one that is not there."""
        tensor = self.op.optional(index)
        return {} if tensor is None else self.known(tensor)

    def shape(self, index: int) -> Shape:
        """The shape of an operand that is there."""
        return self.op.operand(index).type.shape

    def axis(self, index: int = 0) -> int:
        """The attribute ``axis``, of an operand, from 0 on."""
        return integer(self.op.attributes, "axis", 0) % max(len(self.shape(index)), 1)

    def axes(self) -> set[int]:
        """The attribute ``axes``, of the first operand, from 0 on."""
        rank = len(self.shape(0))
        return {axis % rank for axis in integers(self.op.attributes, "axes")}

    def integer(self, name: str, default: int = 0) -> int:
        """An attribute that is a whole number."""
        return integer(self.op.attributes, name, default)

    def seen(self, index: int, axis: int) -> Lane:
        """The added positions of an axis of the result, as an operand that grows to it has them."""
        tensor = self.op.optional(index)
        if tensor is None:
            return LaneKind.ORDINARY
        own = axis - self.rank + len(tensor.type.shape)
        lanes = self.known(tensor)
        if own in lanes:
            return lanes[own]
        return LaneKind.ORDINARY if tensor.data is None else _lane_of(tensor.data)

    def require_same_attributes(self) -> None:
        """Check that the two have the same attributes.

        Raises:
            PaddingError: they have not.
        """
        if dict(self.op.attributes) != dict(self.small.attributes):
            raise PaddingError("it has a number that depends on the size")


def lanes_of_constant(small: Array, large: Array, sizes: tuple[int, int]) -> Lanes | None:
    """The added positions of a constant; ``None`` if it differs at the others."""
    if small.ndim != large.ndim:
        return None
    axes = [axis for axis in range(large.ndim) if small.shape[axis] != large.shape[axis]]
    if any((small.shape[axis], large.shape[axis]) != sizes for axis in axes):
        return None
    inside = tuple(slice(0, size) for size in small.shape)
    if large[inside].tobytes() != small.tobytes():
        return None
    lanes: Lanes = {}
    if len(axes) > 1 and large.dtype.kind == "f" and not bool((large < np.inf).all()):
        return dict.fromkeys(axes, LaneKind.BAD)  # where several axes are filled up, too
    for axis in axes:
        added = (*inside[:axis], slice(sizes[0], sizes[1]), *inside[axis + 1 :])
        lanes[axis] = _lane_of(large[added])
    return lanes


def _lane_of(data: Array) -> Lane:
    """The one number that all elements are, if they are."""
    if not data.size or data.dtype.kind not in "fiub":
        return LaneKind.ORDINARY
    values = np.asarray(data, np.float64).reshape(-1)
    if bool((values == values[0]).all()):
        return float(values[0])
    return LaneKind.ORDINARY if bool(np.isfinite(values).all()) else LaneKind.MIXED
