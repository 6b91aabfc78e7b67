"""The target of an estimate, with what is known about the program that uses it."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field
from typing import Any

from popc.cost.mapping import linear_mapping
from popc.cost.planner import ConvProblem, Planner
from popc.cost.settings import CostSettings
from popc.ir import Op
from popc.target import Target
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = ["CostMemo", "Machine"]


@frozen
class CostMemo:
    """The findings of estimates of a program on a target.

    Attributes:
        planner: Of products.
        works: What ops take, by all that it follows from: see `popc.cost.estimate`.
        kinds: Of each op, what it has in common with ops that take the same code.
    """

    planner: Planner
    works: dict[object, Any] = field(default_factory=dict[object, Any])
    kinds: dict[Op, object] = field(default_factory=dict[Op, object])


@frozen
class Machine:
    """The target, how it is used, and what is known about the program so far.

    ``merged`` are transfers that share syncs with the one before, ``chips`` the numbers of the
    chips along the ladder, in the order in which the program counts them; ``bounds`` says how many
    bytes of a tile are left for the plans of ops, where the others leave less than usual;
    ``problems`` are those that had to be planned.
    """

    target: Target
    settings: CostSettings
    known: CostMemo
    merged: AbstractSet[Op] = frozenset()
    chips: tuple[int, ...] = (0,)
    bounds: Mapping[Op, int] = field(default_factory=dict[Op, int])
    problems: set[ConvProblem] = field(default_factory=set[ConvProblem])

    def place(self, chip: int) -> int:
        """The number along the ladder of a chip of the program."""
        return self.chips[chip] if chip < len(self.chips) else chip

    def share(self, elements: int, dtype: DType) -> int:
        """Elements on the busiest tile if ``elements`` are mapped linearly."""
        mapping = linear_mapping(elements, dtype, self.target.compute_tiles)
        return min(mapping.run, max(elements, 1))
