"""The ways to cut an op into parts: the words in which rules speak."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Final, TypeAlias

from popc.ir import Op, Shape
from popc.ir.attributes import integer, integers
from popc_runtime.format import Attribute
from popc_runtime.ground.frozen import frozen

__all__ = [
    "FIRST_NOT_CUT",
    "LOSS_PLACES",
    "NOT_BATCH",
    "Case",
    "Combination",
    "Cut",
    "Place",
    "Rule",
    "aligned",
    "along",
    "beside_axis",
    "elementwise",
    "like_first",
    "matrices",
    "with_dim",
]


class Combination(Enum):
    """The way to make the whole result of those of parts, if they do not lie side by side."""

    SUM = "Add"
    MEAN = "mean"  # the sum, divided by the number of parts
    MAX = "Max"
    MIN = "Min"
    PRODUCT = "Mul"


# Where the parts of a result lie: along an axis, in order, or nowhere, if they are combined.
Place: TypeAlias = int | Combination


@frozen
class Cut:
    """The cut of an op into equal parts.

    Part p of an operand or result along an axis is the p-th of equal slices.

    Attributes:
        operands: The axis along which each operand is cut; ``None`` if every part reads the whole.
        results: What becomes of each result.
        attributes: Those of a part, where they differ from those of the op.
        divided: Operands that a part reads divided by the number of parts: gradients of means.
    """

    operands: tuple[int | None, ...]
    results: tuple[Place, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])
    divided: tuple[int, ...] = ()


@frozen
class Case:
    """An op to cut.

    Attributes:
        op: The op.
        axes: Along which axis each operand is cut, or could be; ``None``: not at all.
        parts: How many parts there are.
    """

    op: Op
    axes: tuple[int | None, ...]
    parts: int

    def shape(self, index: int) -> Shape:
        """The shape of an operand that is there."""
        return self.op.operand(index).type.shape

    def has(self, index: int) -> bool:
        """True if an operand is there."""
        return self.op.optional(index) is not None

    def axis(self, index: int) -> int | None:
        """The axis along which an operand is cut; ``None`` also if it is not there."""
        return self.axes[index] if self.has(index) else None

    def integer(self, name: str, default: int = 0) -> int:
        """An attribute that is a whole number."""
        return integer(self.op.attributes, name, default)

    def integers(self, name: str) -> tuple[int, ...]:
        """An attribute that is a list of whole numbers."""
        return integers(self.op.attributes, name)

    def cut(
        self,
        operands: Mapping[int, int | None],
        results: Sequence[Place],
        attributes: Mapping[str, Attribute] | None = None,
        divided: tuple[int, ...] = (),
    ) -> Cut:
        """The cut with the axes of some operands; the others stay whole."""
        axes = tuple(
            operands.get(index) if self.has(index) else None for index in range(len(self.axes))
        )
        return Cut(axes, tuple(results[: len(self.op.outputs)]), attributes or {}, divided)

    def part_shape(self, shape: Sequence[int], axis: int) -> tuple[int, ...]:
        """``shape`` with a part of its dimension ``axis``."""
        return with_dim(shape, axis, shape[axis] // self.parts)


# What a loss makes of the losses of parts, where it does not keep them apart.
LOSS_PLACES: Final[dict[str, Place]] = {"mean": Combination.MEAN, "sum": Combination.SUM}

# Reasons that several rules have.
FIRST_NOT_CUT: Final = "its first operand is not cut"
NOT_BATCH: Final = "its operands are cut along another axis than their batch"

# A cut, or why there is none: what follows "stays whole: ".
Rule: TypeAlias = Callable[[Case], "Cut | str"]


def with_dim(shape: Sequence[int], axis: int, size: int) -> tuple[int, ...]:
    """``shape`` with another dimension ``axis``."""
    return (*shape[:axis], size, *shape[axis + 1 :])


def aligned(shape: Shape, rank: int, axis: int) -> int | None:
    """The axis of an operand that broadcasts to ``axis`` of ``rank``; ``None`` if it has none."""
    own = axis - (rank - len(shape))
    return own if own >= 0 and shape[own] != 1 else None


def along(operands: Mapping[int, int], results: Iterable[Place]) -> Rule:
    """The rule of ops that have their batch at fixed axes.

    Args:
        operands: By number of the operand, its batch axis; the others are read as a whole.
        results: For each result.
    """
    places = tuple(results)

    def rule(case: Case) -> Cut | str:
        if any(case.axis(index) == axis for index, axis in operands.items()):
            return case.cut(operands, places)
        return NOT_BATCH

    return rule


def elementwise(case: Case) -> Cut | str:
    """Results have the shape that the operands broadcast to."""
    rank = case.op.output.type.rank
    places = (
        axis + rank - len(case.shape(index))
        for index, axis in enumerate(case.axes)
        if axis is not None
    )
    place = next(places, None)
    if place is None:
        return "none of its operands is cut"
    operands = {
        index: aligned(case.shape(index), rank, place)
        for index in range(len(case.axes))
        if case.has(index)
    }
    return case.cut(operands, (place,) * len(case.op.outputs))


def like_first(case: Case) -> Cut | str:
    """The result has the shape of operand 0; others with that shape are cut with it."""
    axis = case.axis(0)
    if axis is None:
        return FIRST_NOT_CUT
    shape = case.shape(0)
    operands = {
        index: axis
        for index in range(len(case.axes))
        if case.has(index) and case.shape(index) == shape
    }
    return case.cut(operands, (axis,) * len(case.op.outputs))


def beside_axis(case: Case) -> Cut | str:
    """Ops that work along attribute ``axis``, each row by itself."""
    axis = case.axis(0)
    if axis is None:
        return FIRST_NOT_CUT
    if "axis" not in case.op.attributes:
        return "its axis is known at run time only"
    if case.integer("axis") % len(case.shape(0)) == axis:
        return "it works along the batch"
    return case.cut({0: axis}, (axis,) * len(case.op.outputs))


def matrices(case: Case) -> Cut | str:
    """Ops on each matrix in the last two axes of the last operand that has any."""
    ranks = {index: len(case.shape(index)) for index in range(len(case.axes)) if case.has(index)}
    axis = next((dim for dim in case.axes if dim is not None), None)
    if axis is None or axis >= max(ranks.values()) - 2:
        return "its batch is part of the matrices"
    return case.cut({index: axis for index, rank in ranks.items() if rank > axis}, (axis,))
