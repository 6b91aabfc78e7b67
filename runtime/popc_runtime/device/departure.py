"""Memory of their own for results, so that a run may write them where its caller gets them.

A result has it if one instruction writes all of it, only instructions read it until it is stored,
and nothing does afterwards.  What a direct run does with such memory is write the caller's in its
place, without a copy (`csrc/landings.h`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from popc_runtime.device.moved_slots import (
    ALIGNMENT,
    LEAST,
    Moved,
    MovedSlots,
    is_dense,
    operands,
    stored,
)
from popc_runtime.format import Block, Instruction, Item
from popc_runtime.ground.frozen import replace

__all__ = ["departed"]


def departed(slots: MovedSlots, block: Block) -> Block:
    """A program whose results are written to memory of their own where they can be."""
    items = list(block)
    for number, item in enumerate(block):
        wanted = stored(item)
        if wanted < 0:
            continue
        low, high = slots.extent(wanted)
        if high - low < LEAST or slots.all[wanted].strides is not None:
            continue
        touching = _touching(slots, items, number, low, high)
        if touching is None or _is_read(slots, items[number + 1 :], low, high):
            continue
        start = -(-slots.arena_bytes // ALIGNMENT) * ALIGNMENT
        slots.arena_bytes = start + high - low
        place = Moved(wanted, low, high, start - low)
        for each, (instruction, writes) in touching.items():
            items[each] = _moved(slots, instruction, place, writes=writes)
        slots.landed.add(slots.moved(wanted, place))
    return tuple(items)


def _touching(
    slots: MovedSlots, items: Sequence[Item], store: int, low: int, high: int
) -> dict[int, tuple[Instruction, bool]] | None:
    """The instructions that read what item number ``store`` stores, and the one that writes it.

    By their numbers, and whether they write it.  ``None`` if not all of it is written by one
    instruction, or if it is touched in another way.
    """
    found: dict[int, tuple[Instruction, bool]] = {}
    for number in range(store, -1, -1):
        item = items[number]
        met = list(_met(slots, item, low, high))
        if not met:
            continue
        if not isinstance(item, Instruction):
            return None
        written = [slot for slot, way in met if way == "written"]
        if written:
            whole = len(written) == 1 and _covers(slots, written[0], low, high)
            if not whole or item.opcode == "HostLoad":
                return None
            return {**found, number: (item, True)}
        extents = [slots.extent(slot) for slot, _ in met]
        inside = all(low <= begin and end <= high for begin, end in extents)
        if not inside or (item.opcode == "HostStore" and number != store):
            return None
        found[number] = item, False
    return None


def _is_read(slots: MovedSlots, items: Sequence[Item], low: int, high: int) -> bool:
    """True if items read bytes of an extent before all of them are written anew."""
    for item in items:
        met = list(_met(slots, item, low, high))
        if any(way != "written" for _, way in met):
            return True
        if isinstance(item, Instruction) and any(
            _covers(slots, slot, low, high) for slot, _ in met
        ):
            return False
    return False


def _met(slots: MovedSlots, item: Item, low: int, high: int) -> Iterator[tuple[int, str]]:
    """The slots of an item that touch an extent, and in which way."""
    for slot, way in operands(slots.image, item):
        begin, end = slots.extent(slot)
        if begin < end and begin < high and low < end:
            yield slot, way


def _covers(slots: MovedSlots, slot: int, low: int, high: int) -> bool:
    return slots.extent(slot) == (low, high) and is_dense(slots.all[slot])


def _moved(slots: MovedSlots, item: Instruction, place: Moved, *, writes: bool) -> Instruction:
    """An instruction that reads, or writes, a result where it has moved."""

    def at(slot: int) -> int:
        low, high = slots.extent(slot)
        inside = place.low <= low < high <= place.high
        return slots.moved(slot, place) if inside else slot

    if writes:
        return replace(item, outputs=tuple(map(at, item.outputs)))
    return replace(item, inputs=tuple(map(at, item.inputs)))
