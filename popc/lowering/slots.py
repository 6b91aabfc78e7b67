"""The slot table: tensors at their placements, numbered on first use."""

from __future__ import annotations

from popc.ir import Op, Tensor
from popc.memory import MemoryPlan
from popc_runtime.format import DType, Slot

__all__ = ["SlotTable"]


class SlotTable:
    """Numbers the distinct slots of a program."""

    def __init__(self, plan: MemoryPlan) -> None:
        self._plan = plan
        self._numbers: dict[Slot, int] = {}
        self._by_fields: dict[object, int] = {}
        self._known: dict[Tensor, int] = {}

    def of(self, tensor: Tensor | None) -> int:
        """The slot number of ``tensor``; -1 for an absent operand."""
        if tensor is None:
            return -1
        known = self._known.get(tensor)
        if known is not None:
            return known
        placement, type_ = self._plan.placements[tensor], tensor.type
        where = (placement.region, placement.offset, type_.dtype, type_.shape)
        key = (*where, placement.strides, placement.parameter)
        number = self._by_fields.get(key)
        if number is None:  # to make a slot and compare it takes longer
            number = self._numbers.setdefault(Slot(*key), len(self._numbers))
            self._by_fields[key] = number
        self._known[tensor] = number
        return number

    def initial(self, variable: Tensor) -> int:
        """The slot of the constant that ``variable`` starts as."""
        placement, type_ = self._plan.initial[variable], variable.type
        shape = variable.whole or type_.shape
        slot = Slot(placement.region, placement.offset, type_.dtype, shape)
        return self._numbers.setdefault(slot, len(self._numbers))

    def within(self, whole: Tensor, part: Tensor, offset: int) -> int:
        """The slot of ``part``'s type that lies ``offset`` bytes into ``whole``, as that does."""
        placement = self._plan.placements[whole]
        type_ = part.type
        where = (placement.region, placement.offset + offset)
        slot = Slot(*where, type_.dtype, type_.shape, placement.strides, placement.parameter)
        return self._numbers.setdefault(slot, len(self._numbers))

    def frame(self, call: Op, nbytes: int) -> int:
        """The slot of what ``call`` hands over to work in, of ``nbytes``."""
        placement = self._plan.frames[call]
        where = (placement.region, placement.offset)
        slot = Slot(*where, DType.UINT8, (nbytes,), parameter=placement.parameter)
        return self._numbers.setdefault(slot, len(self._numbers))

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All slots by number."""
        return tuple(self._numbers)
