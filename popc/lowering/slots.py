"""The slot table: tensors at their placements, numbered on first use."""

from __future__ import annotations

from typing import TypeAlias

from popc.ir import Op, Shape, Tensor
from popc.memory import MemoryPlan
from popc_runtime.format import DType, Region, Slot

__all__ = ["SlotTable"]

# Of a `Slot`, up to the parameter: to make slots and to compare them takes longer.
_Fields: TypeAlias = "tuple[Region, int, DType, Shape, Shape | None, int]"


class SlotTable:
    """Numbers the distinct slots of a program."""

    def __init__(self, plan: MemoryPlan) -> None:
        self._plan = plan
        self._numbers: dict[_Fields, int] = {}
        self._known: dict[Tensor, int] = {}

    def of(self, tensor: Tensor | None) -> int:
        """The slot number of ``tensor``; -1 for an absent operand."""
        if tensor is None:
            return -1
        known = self._known.get(tensor)
        if known is None:
            place, type_ = self._plan.placements[tensor], tensor.type
            where = (place.region, place.offset)
            fields = (*where, type_.dtype, type_.shape, place.strides, place.parameter)
            known = self._known[tensor] = self._number(fields)
        return known

    def initial(self, variable: Tensor) -> int:
        """The slot of the constant that ``variable`` starts as."""
        place, type_ = self._plan.initial[variable], variable.type
        shape = variable.whole or type_.shape
        return self._number((place.region, place.offset, type_.dtype, shape, None, -1))

    def within(self, whole: Tensor, part: Tensor, offset: int) -> int:
        """The slot of ``part``'s type that lies ``offset`` bytes into ``whole``, as that does."""
        place, type_ = self._plan.placements[whole], part.type
        where = (place.region, place.offset + offset)
        return self._number((*where, type_.dtype, type_.shape, place.strides, place.parameter))

    def frame(self, call: Op, nbytes: int) -> int:
        """The slot of what ``call`` hands over to work in, of ``nbytes``."""
        place = self._plan.frames[call]
        return self._number(
            (place.region, place.offset, DType.UINT8, (nbytes,), None, place.parameter)
        )

    def _number(self, fields: _Fields) -> int:
        return self._numbers.setdefault(fields, len(self._numbers))

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All slots by number."""
        return tuple(Slot(*fields) for fields in self._numbers)
