"""Memory of their own for inputs, so that a run may read them where its caller has them.

The plan gives memory that nobody reads any more to other tensors: where an input was, there are
intermediate results later.  Here the instructions that read an input, until anything is written to
its memory, get slots in memory that only the transfer of the input writes to.  What a direct run
does with such memory is read the caller's in its place (`csrc/landings.h`).

An input stays where it is if it is not plain that each reader sees the input and nothing else:
where some of what is read has been overwritten, or may have been; where a loop or a branch both
reads and writes to its memory, returns it, or calls a program that reads it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

from popc_runtime.device.departure import departed
from popc_runtime.device.extents import extent_of
from popc_runtime.device.moved_slots import (
    ALIGNMENT,
    LEAST,
    Moved,
    MovedSlots,
    bodies,
    is_dense,
    operands,
    stored,
)
from popc_runtime.format import (
    LOAD_PROGRAM,
    Block,
    CallBlock,
    IfBlock,
    Instruction,
    Item,
    ProgramImage,
    RepeatBlock,
    Slot,
)
from popc_runtime.ground.frozen import frozen, replace

__all__ = ["Landings", "with_landings"]


@frozen
class Landings:
    """Slots with memory of their own.

    Attributes:
        own: Those that inputs are loaded to, or results stored from, and nothing else touches.
        copied: Results that are inputs, or parts of them: what a run hands out is a copy.
    """

    own: frozenset[int] = frozenset()
    copied: frozenset[int] = frozenset()


def with_landings(image: ProgramImage) -> tuple[ProgramImage, Landings]:
    """``image`` with memory of their own for inputs and results, and their slots.

    No slot of it lies in a parameter.
    """
    called = {name for block in image.programs.values() for name in _called(block)}
    slots = MovedSlots(image)
    programs = dict(image.programs)
    for name, block in programs.items():
        if name != LOAD_PROGRAM and name not in called:
            programs[name] = departed(slots, _landed(slots, block))
    if not slots.landed:
        return image, Landings()
    made = replace(image, slots=tuple(slots.all), programs=programs, arena_bytes=slots.arena_bytes)
    return made, Landings(frozenset(slots.landed), frozenset(slots.copied))


def _landed(slots: MovedSlots, block: Block) -> Block:
    """A program whose inputs land where they can."""
    landings: dict[int, Moved] = {}
    end = slots.image.arena_bytes  # programs run one at a time
    for place, item in enumerate(block):
        slot = _loaded(item)
        low, high = slots.extent(slot)
        if high - low < LEAST or slots.all[slot].strides is not None:
            continue
        start = -(-end // ALIGNMENT) * ALIGNMENT
        landings[place] = Moved(slot, low, high, start - low)
        end = start + high - low
    if not landings:
        return block
    first = _Walk(slots, landings)
    first.program(block)
    apart = {place: each for place, each in landings.items() if place not in first.mixed}
    walk = _Walk(slots, apart)
    made = walk.program(block)
    assert not walk.mixed, "inputs do not depend on each other"
    slots.landed.update(slots.moved(each.slot, each) for each in apart.values())
    slots.arena_bytes = max(slots.arena_bytes, end if apart else 0)
    return made


def _joined(one: Slot, other: Slot) -> Slot | None:
    """Both, if one continues the other along an axis: what operands of a Concat are written to."""
    first, second = sorted((one, other), key=lambda slot: slot.offset)
    alike = first.strides == second.strides and first.dtype.itemsize == second.dtype.itemsize
    if not alike or first.strides is None or len(first.shape) != len(second.shape):
        return None
    sizes = list(enumerate(zip(first.shape, second.shape, strict=True)))
    apart = [axis for axis, (size, continued) in sizes if size != continued]
    for axis in apart or range(len(sizes)):
        size, continued = sizes[axis][1]
        if len(apart) < 2 and second.offset - first.offset == size * first.strides[axis]:
            shape = (*first.shape[:axis], size + continued, *first.shape[axis + 1 :])
            return replace(first, shape=shape)
    return None


def _loaded(item: Item) -> int:
    """The slot of the only tensor that an item loads; -1 if there is none."""
    if isinstance(item, Instruction) and item.opcode == "HostLoad" and len(item.outputs) == 1:
        return item.outputs[0]
    return -1


def _called(block: Block) -> Iterator[str]:
    """The programs that a block calls."""
    for item in block:
        if isinstance(item, CallBlock):
            yield item.program
        else:
            for body in bodies(item):
                yield from _called(body)


@frozen
class _Stretch:
    """Bytes that hold those of the input that ``place`` loads; or may hold them, if in doubt."""

    low: int
    high: int
    place: int
    doubtful: bool = False


class _Contents:
    """The bytes that are still those of inputs, in the order of the arena."""

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._stretches: list[_Stretch] = []

    def __bool__(self) -> bool:
        return bool(self._lows)

    def meeting(self, extent: tuple[int, int]) -> list[_Stretch]:
        """The stretches that have bytes of an extent."""
        low, high = extent
        end = bisect_left(self._lows, high)
        start = end
        while start and self._stretches[start - 1].high > low:
            start -= 1
        return self._stretches[start:end] if low < high else []

    def overwrite(self, extent: tuple[int, int], *, doubtful: bool = False) -> None:
        """The bytes of an extent are something else from here on; or may be, if in doubt."""
        low, high = extent
        for old in self.meeting(extent):
            parts = [replace(old, high=min(low, old.high)), replace(old, low=max(high, old.low))]
            if doubtful:
                inside = replace(old, low=max(low, old.low), high=min(high, old.high))
                parts.append(replace(inside, doubtful=True))
            self._remove(old)
            for part in parts:
                if part.low < part.high:
                    self.add(part)

    def add(self, stretch: _Stretch) -> None:
        """Bytes of which none is part of another stretch."""
        at = bisect_left(self._lows, stretch.low)
        self._lows.insert(at, stretch.low)
        self._stretches.insert(at, stretch)

    def drop(self, places: Iterable[int]) -> None:
        """Forget inputs."""
        for old in [each for each in self._stretches if each.place in set(places)]:
            self._remove(old)

    def _remove(self, stretch: _Stretch) -> None:
        at = bisect_left(self._lows, stretch.low)
        del self._lows[at], self._stretches[at]


class _Walk:
    """Goes through a program in order, and gives readers of inputs other slots.

    ``landings`` are those of inputs by the place of their load in the program.

    Attributes:
        mixed: The places of inputs that cannot land, after all.
    """

    def __init__(self, slots: MovedSlots, landings: Mapping[int, Moved]) -> None:
        self.mixed: set[int] = set()
        self._slots = slots
        self._landings = landings
        self._contents = _Contents()
        self._parts: list[Slot] = []  # that have been written since an input was loaded

    def program(self, block: Block) -> Block:
        """The items of a program."""
        items: list[Item] = []
        for place, item in enumerate(block):
            landing = self._landings.get(place)
            if landing is None or not isinstance(item, Instruction):
                items.append(self._item(item) if self._contents else item)
                continue
            self._parts.clear()
            self._contents.overwrite((landing.low, landing.high))
            self._contents.add(_Stretch(landing.low, landing.high, place))
            items.append(replace(item, outputs=(self._slots.moved(landing.slot, landing),)))
        return tuple(items)

    def _item(self, item: Item) -> Item:
        if not isinstance(item, Instruction):
            return self._block(item)
        made = self._reader(item) if stored(item) < 0 else self._store(item)
        for number in item.outputs:
            if self._contents.meeting(self._slots.extent(number)):
                self._write(self._slots.all[number])
        return made

    def _write(self, slot: Slot) -> None:
        """Add a slot to what has been written; several with gaps may leave none together."""
        for part in tuple(self._parts):
            joined = _joined(part, slot)
            if joined is not None:
                self._parts.remove(part)
                slot = joined
        self._parts.append(slot)
        self._contents.overwrite(extent_of(slot), doubtful=not is_dense(slot))

    def _block(self, item: Item) -> Item:
        """A loop, a branch or a call: how often, and in which order, it does what is not said."""
        touched = tuple(operands(self._slots.image, item))
        read = self._met(number for number, way in touched if way != "written")
        self._mix(self._met(number for number, way in touched if way == "held"))
        self._mix(read & self._met(number for number, way in touched if way == "written"))
        made = self._nested(item)
        for number, way in touched:
            if way == "written":
                self._contents.overwrite(self._slots.extent(number), doubtful=True)
        return made

    def _nested(self, item: Item) -> Item:
        """The same item, whose instructions read inputs where they land."""
        if isinstance(item, Instruction):
            return self._reader(item)
        if isinstance(item, RepeatBlock):
            return replace(item, body=tuple(map(self._nested, item.body)))
        if isinstance(item, IfBlock):
            then_body, else_body = (tuple(map(self._nested, body)) for body in bodies(item))
            return replace(item, then_body=then_body, else_body=else_body)
        return item

    def _reader(self, item: Instruction) -> Instruction:
        if item.opcode == "HostStore":
            self._mix(self._met(item.inputs))
            return item
        inputs = tuple(map(self._read, item.inputs))
        return item if inputs == item.inputs else replace(item, inputs=inputs)

    def _store(self, item: Instruction) -> Instruction:
        """A store of what may be part of an input: a copy of that is stored then."""
        wanted = stored(item)
        number = self._read(wanted)
        if number != wanted:
            self._slots.copied.add(number)
        return replace(item, inputs=(number,))

    def _read(self, number: int) -> int:
        low, high = self._slots.extent(number)
        found = self._contents.meeting((low, high))
        if not found:
            return number
        first = found[0]
        landing = self._landings[first.place]
        # Callers align arrays to their own elements.
        own, loaded = (self._slots.all[each].dtype for each in (number, landing.slot))
        fits = own.itemsize <= loaded.itemsize
        if not fits or first.doubtful or not first.low <= low < high <= first.high:
            self._mix({each.place for each in found})
            return number
        return self._slots.moved(number, landing)

    def _met(self, numbers: Iterable[int]) -> set[int]:
        """The inputs of which some bytes are touched."""
        extents = map(self._slots.extent, numbers)
        return {each.place for extent in extents for each in self._contents.meeting(extent)}

    def _mix(self, places: set[int]) -> None:
        self.mixed |= places
        self._contents.drop(places)
