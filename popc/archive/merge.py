"""Several programs of one model as one image: weights once, one arena, one state.

A constant that several programs hold is stored once, by its content; slots move with it.  Scratch
memory is that of the largest program, for only one runs at a time.  What lives from load to unload
lies side by side, but variables are the same for all programs: those that a later program has in
common with an earlier one are moved to where they lie there.  If a program computes the same at
load time as another, it shares the results.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import Final, TypeAlias

import numpy as np

from popc.memory import ConstantBlock
from popc.ops.shared import content_digest
from popc.progress import OnBytes
from popc.schedule import aligned
from popc_runtime.errors import UsageError
from popc_runtime.format import (
    LOAD_PROGRAM,
    MAIN_PROGRAM,
    Array,
    Block,
    CallBlock,
    Instruction,
    Item,
    ProgramImage,
    Region,
    RepeatBlock,
    Slot,
    VariableSpec,
    reach,
)
from popc_runtime.ground.frozen import frozen, mutable

__all__ = ["ProgramPart", "merge_images"]

_SAMPLES: Final = 256
_LASTING: Final = (Region.STATE, Region.REMOTE)


@frozen
class ProgramPart:
    """A program that is going to be one of several.

    Attributes:
        name: Of its main program in the whole.
        image: As it would be alone.
        constants: Its constant region.
        variables: What the host may read and write.
    """

    name: str
    image: ProgramImage
    constants: tuple[ConstantBlock, ...]
    variables: tuple[VariableSpec, ...]


def merge_images(
    parts: Sequence[ProgramPart], on_bytes: OnBytes
) -> tuple[ProgramImage, tuple[ConstantBlock, ...], tuple[VariableSpec, ...]]:
    """The image of all parts, its constants, and the variables by name.

    ``on_bytes`` is told how much of the constants has been looked at.

    Raises:
        UsageError: programs lay out variables so differently that they cannot share them.
    """
    total = sum(block.data.nbytes for part in parts for block in part.constants)
    merger = _Merger(_Constants(total, on_bytes))
    for part in parts:
        merger.add(part)
    variables = sorted(merger.variables.values(), key=lambda spec: spec.name)
    return merger.image(), tuple(merger.constants.blocks), tuple(variables)


@mutable
class _Constants:
    """Constants by their content; ``on_bytes`` is told how many of ``total`` bytes were seen."""

    total: int
    on_bytes: OnBytes
    done: int = 0
    blocks: list[ConstantBlock] = field(default_factory=list[ConstantBlock])
    nbytes: int = 0
    _offsets: dict[tuple[int, bytes], int] = field(default_factory=dict["tuple[int, bytes]", int])
    # By size and some bytes: the first, until there are others and it is hashed.
    _firsts: dict[tuple[int, bytes], ConstantBlock | None] = field(
        default_factory=dict["tuple[int, bytes]", ConstantBlock | None]
    )

    def offset(self, data: Array) -> int:
        """The place of these bytes, which are added if need be."""
        self.done += data.nbytes
        self.on_bytes(self.done, self.total)
        alike = (data.nbytes, _some_bytes(data))
        if alike not in self._firsts:
            self._firsts[alike] = self._add(data)
            return self.blocks[-1].offset
        first = self._firsts[alike]
        if first is not None:
            self._offsets[first.data.nbytes, content_digest(first.data)] = first.offset
            self._firsts[alike] = None
        key = (data.nbytes, content_digest(data))
        if key not in self._offsets:
            self._offsets[key] = self._add(data).offset
        return self._offsets[key]

    def _add(self, data: Array) -> ConstantBlock:
        block = ConstantBlock(self.nbytes, data)
        self.blocks.append(block)
        self.nbytes = aligned(self.nbytes + data.nbytes)
        return block


def _some_bytes(data: Array) -> bytes:
    """Some hundred from all over an array: unequal weights seldom agree in them."""
    flat = data.reshape(-1).view(np.uint8)
    return flat[:: flat.size // _SAMPLES | 1].tobytes()


class _Merger:
    """Adds one program after the other."""

    def __init__(self, constants: _Constants) -> None:
        self.constants = constants
        self.variables: dict[str, VariableSpec] = {}
        self._slots: dict[Slot, int] = {}
        self._programs: dict[str, Block] = {}
        self._loads: dict[str, _Shifts] = {}
        self._load: list[Item] = []
        self._arena = 0
        self._sizes = dict.fromkeys(_LASTING, 0)

    def image(self) -> ProgramImage:
        """The parts that have been added so far."""
        programs = {LOAD_PROGRAM: tuple(self._load)} if self._load else {}
        return ProgramImage(
            tuple(self._slots),
            {**programs, **self._programs},
            self._arena,
            self.constants.nbytes,
            self._sizes[Region.STATE],
            self._sizes[Region.REMOTE],
        )

    def add(self, part: ProgramPart) -> None:
        """Take a program in."""
        image = self._with_constants(part)
        self._arena = max(self._arena, image.arena_bytes)
        load = image.programs.get(LOAD_PROGRAM, ())
        computed = repr(_Writer({}, image, part.name, {}).resolved(load))
        known = None if part.variables else self._loads.get(computed)
        shifts = self._shifts(part) if known is None else known
        writer = _Writer(self._slots, image, part.name, shifts)
        if known is None:
            self._loads[computed] = shifts
            self._load += writer.block(load)
        for name, block in image.programs.items():
            if name != LOAD_PROGRAM:
                self._programs[writer.renamed(name)] = writer.block(block)

    def _with_constants(self, part: ProgramPart) -> ProgramImage:
        """The image of a part on the constants of the whole."""
        starts = [block.offset for block in part.constants]
        moves = [self.constants.offset(block.data) - block.offset for block in part.constants]

        def moved(slot: Slot) -> Slot:
            if slot.region is not Region.CONSTANT:
                return slot
            if 0 in slot.shape:
                return replace(slot, offset=0)
            move = moves[bisect_right(starts, slot.offset) - 1]
            return replace(slot, offset=slot.offset + move)

        return replace(part.image, slots=tuple(map(moved, part.image.slots)))

    def _shifts(self, part: ProgramPart) -> _Shifts:
        """The distance by which each stretch of lasting memory of a new part moves."""
        found: _Shifts = {}
        for region in _LASTING:
            specs = [spec for spec in part.variables if spec.off_chip == (region is Region.REMOTE)]
            for low, high in _stretches(part.image, region, specs):
                inside = [spec for spec in specs if low <= spec.offset < high]
                moves = {self._move(spec) for spec in inside if spec.name in self.variables}
                if len(moves) > 1:
                    raise _cannot_share(inside)
                move = next(iter(moves), None)
                if move is None:
                    move = self._sizes[region] - low
                self._sizes[region] = max(self._sizes[region], aligned(high + move))
                found[region, low, high] = move
                for spec in inside:
                    moved = replace(spec, offset=spec.offset + move)
                    self.variables.setdefault(spec.name, moved)
        return found

    def _move(self, spec: VariableSpec) -> int:
        """The distance by which a variable moves to its place in an earlier program."""
        known = self.variables[spec.name]
        if replace(known, offset=spec.offset) != spec:
            raise _cannot_share([spec])
        return known.offset - spec.offset


# By region and extent of what hangs together.
_Shifts: TypeAlias = "dict[tuple[Region, int, int], int]"


def _stretches(
    image: ProgramImage, region: Region, variables: Sequence[VariableSpec]
) -> Iterator[tuple[int, int]]:
    """Extents of memory that slots reach from one end to the other, from low to high."""
    extents = [reach(slot) for slot in image.slots if slot.region is region]
    extents += [(spec.offset, spec.offset + spec.nbytes) for spec in variables]
    current: tuple[int, int] | None = None
    for low, high in sorted(extent for extent in extents if extent[0] < extent[1]):
        if current is not None and low < current[1]:
            current = (current[0], max(current[1], high))
            continue
        if current is not None:
            yield current
        current = (low, high)
    if current is not None:
        yield current


def _cannot_share(variables: Sequence[VariableSpec]) -> UsageError:
    names = ", ".join(spec.name for spec in variables[:4])
    return UsageError(
        f"the programs lay out {names} in different ways and cannot share them",
        hint="compile an archive for each, or with the same options about variables",
    )


class _Writer:
    """Writes blocks of one image with the slots of another; equal slots have one number."""

    def __init__(
        self, slots: dict[Slot, int], image: ProgramImage, name: str, shifts: _Shifts
    ) -> None:
        self._slots = slots
        self._image = image
        self._name = name
        self._shifts = shifts
        self._numbers: dict[int, int] = {}

    def renamed(self, program: str) -> str:
        """The name of a program in the whole."""
        if program == MAIN_PROGRAM:
            return self._name
        return program if self._name == MAIN_PROGRAM else f"{self._name}/{program}"

    def resolved(self, block: Block) -> object:
        """A block with slots in place of their numbers."""
        written = self.block(block)
        return written, tuple(self._slots)

    def block(self, block: Block) -> Block:
        """``block`` on the slots of the whole."""
        return tuple(self._item(item) for item in block)

    def _item(self, item: Item) -> Item:
        if isinstance(item, Instruction):
            inputs, outputs = self._all(item.inputs), self._all(item.outputs)
            return replace(item, inputs=inputs, outputs=outputs)
        if isinstance(item, CallBlock):
            program = self.renamed(item.program)
            return replace(item, program=program, arguments=self._all(item.arguments))
        if isinstance(item, RepeatBlock):
            return replace(
                item,
                body=self.block(item.body),
                count_slot=self._slot(item.count_slot),
                condition_slot=self._slot(item.condition_slot),
                counter_slot=self._slot(item.counter_slot),
            )
        return replace(
            item,
            condition_slot=self._slot(item.condition_slot),
            then_body=self.block(item.then_body),
            else_body=self.block(item.else_body),
        )

    def _all(self, numbers: Sequence[int]) -> tuple[int, ...]:
        return tuple(map(self._slot, numbers))

    def _slot(self, number: int) -> int:
        if number < 0:
            return number
        if number not in self._numbers:
            slot = self._moved(self._image.slots[number])
            self._numbers[number] = self._slots.setdefault(slot, len(self._slots))
        return self._numbers[number]

    def _moved(self, slot: Slot) -> Slot:
        if slot.region not in _LASTING or not self._shifts:
            return slot
        if 0 in slot.shape:
            return replace(slot, offset=0)
        start, _ = reach(slot)
        moves = (
            move
            for (region, low, high), move in self._shifts.items()
            if region is slot.region and low <= start < high
        )
        return replace(slot, offset=slot.offset + next(moves))
