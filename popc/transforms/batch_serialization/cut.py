"""The ways to cut an op into parts: the words in which rules speak."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from popc.ir import Op, Shape
from popc.ir.attributes import integer, integers
from popc_runtime.format import Attribute

__all__ = ["Case", "Combination", "Cut", "Place", "Rule", "aligned", "along", "with_dim"]


class Combination(Enum):
    """The way to make the whole result of those of parts, if they do not lie side by side."""

    SUM = "Add"
    MEAN = "mean"  # the sum, divided by the number of parts
    MAX = "Max"
    MIN = "Min"
    PRODUCT = "Mul"


# Where the parts of a result lie: along an axis, in order, or nowhere, if they are combined.
Place: TypeAlias = int | Combination


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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
        return "its operands are cut along another axis than their batch"

    return rule
