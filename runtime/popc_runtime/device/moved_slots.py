"""Slots with memory of their own, at the end of the arena: see `landing` and `departure`."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from popc_runtime.device.extents import extent_of
from popc_runtime.format import (
    Block,
    CallBlock,
    IfBlock,
    Instruction,
    Item,
    ProgramImage,
    Region,
    RepeatBlock,
    Slot,
)
from popc_runtime.ground.frozen import frozen, replace
from popc_runtime.ground.hints import Final

__all__ = ["ALIGNMENT", "LEAST", "Moved", "MovedSlots", "bodies", "is_dense", "operands", "stored"]

LEAST: Final = 1 << 12  # bytes: fewer are copied in some 50 ns
ALIGNMENT: Final = 64


@frozen
class Moved:
    """An input or a result: the slot that the plan has it in, its extent, and how far it moves."""

    slot: int
    low: int
    high: int
    distance: int


class MovedSlots:
    """The slots of an image, and more of them.

    Attributes:
        all: All of them.
        landed: Those that inputs are loaded to, or results stored from, in memory of their own.
        copied: Those that results are stored from though they are parts of inputs.
        arena_bytes: With that memory.
    """

    def __init__(self, image: ProgramImage) -> None:
        self.image = image
        self.all = list(image.slots)
        self.landed: set[int] = set()
        self.copied: set[int] = set()
        self.arena_bytes = image.arena_bytes
        self._numbers: dict[Slot, int] = {}
        self._extents: dict[int, tuple[int, int]] = {}

    def extent(self, number: int) -> tuple[int, int]:
        """The bytes of the arena that a slot touches; none if it lies elsewhere, or is absent."""
        if number < 0:
            return 0, 0
        if number not in self._extents:
            slot = self.all[number]
            inside = slot.region is Region.ARENA and 0 not in slot.shape
            self._extents[number] = extent_of(slot) if inside else (0, 0)
        return self._extents[number]

    def moved(self, number: int, place: Moved) -> int:
        """The slot with the same elements where an input or a result has moved."""
        slot = self.all[number]
        slot = replace(slot, offset=slot.offset + place.distance)
        if slot not in self._numbers:
            self._numbers[slot] = len(self.all)
            self.all.append(slot)
        return self._numbers[slot]


def is_dense(slot: Slot) -> bool:
    """True if a slot touches every byte of its extent."""
    low, high = extent_of(slot)
    return slot.dtype.itemsize * prod(slot.shape) == high - low


def stored(item: Item) -> int:
    """The slot of the only tensor that an item stores; -1 if there is none."""
    if isinstance(item, Instruction) and item.opcode == "HostStore" and len(item.inputs) == 1:
        return item.inputs[0]
    return -1


def bodies(item: Item) -> tuple[Block, ...]:
    """The blocks of a loop or a branch."""
    if isinstance(item, RepeatBlock):
        return (item.body,)
    return (item.then_body, item.else_body) if isinstance(item, IfBlock) else ()


def operands(image: ProgramImage, item: Item) -> Iterator[tuple[int, str]]:
    """The slots of an item, and whether they are read, written, or held: read for good."""
    if isinstance(item, Instruction):
        yield from ((number, "read") for number in item.inputs)
        yield from ((number, "written") for number in item.outputs)
    elif isinstance(item, CallBlock):
        yield from ((number, "held") for number in item.arguments)
        for inner in image.programs[item.program]:
            for number, way in operands(image, inner):
                yield number, "held" if way == "read" else way
    elif isinstance(item, RepeatBlock):
        yield from ((number, "held") for number in (item.count_slot, item.condition_slot))
        yield item.counter_slot, "written"
    else:
        yield item.condition_slot, "held"
    for body in bodies(item):
        for inner in body:
            yield from operands(image, inner)
