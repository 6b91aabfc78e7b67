"""Checks that make a program image safe to run: it stays within its memory and comes to its end.

An engine may rely on this: every slot lies within its region, every operand names a slot, nothing
writes to constants, the scalars that steer blocks are scalars, calls lead to programs and never in
a circle, and hand over as much memory as these use.  Whether an opcode exists, and whether operands
suit it, is for the engine to find out.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm, prod

from popc_runtime.format.dtypes import DType
from popc_runtime.format.labels import text_written_out
from popc_runtime.format.limits import DEFAULT_LIMITS, MAX_DIMENSION, MAX_RANK, Limits
from popc_runtime.format.panels import packed_bytes, packing_problem
from popc_runtime.format.program import (
    Block,
    CallBlock,
    IfBlock,
    Instruction,
    Packing,
    ProgramImage,
    Region,
    RepeatBlock,
    Slot,
)
from popc_runtime.ground.frozen import frozen, replace
from popc_runtime.ground.hints import Final, TypeAlias

__all__ = ["reach", "validate_image", "volume"]


def validate_image(image: ProgramImage, limits: Limits = DEFAULT_LIMITS) -> None:
    """Check the whole image.

    Raises:
        ValueError: and what is wrong, as a clause.
    """
    sizes = {
        Region.ARENA: image.arena_bytes,
        Region.CONSTANT: image.constant_bytes,
        Region.STATE: image.state_bytes,
        Region.REMOTE: image.remote_bytes,
        Region.PARAMETER: limits.memory_bytes,  # what it really is depends on the call
    }
    for region, size in sizes.items():
        if not 0 <= size <= limits.memory_bytes:
            raise ValueError(f"region {region.name} has {size:,} bytes")
    for number, slot in enumerate(image.slots):
        problem = _slot_problem(slot, sizes[slot.region], limits)
        if problem:
            raise ValueError(f"slot {number} {problem}")
    _Programs(image, limits).check()
    text = text_written_out(image.programs)
    if text > limits.expanded_text_bytes:
        raise ValueError(
            f"the names of instructions have {text:,} bytes with all calls written out"
        )


def _slot_problem(slot: Slot, region_bytes: int, limits: Limits) -> str:
    """The fault of a slot, as a clause."""
    problem = _shape_problem(slot, limits)
    if problem:
        return problem
    if (slot.region is Region.PARAMETER) != (slot.parameter >= 0):
        return f"lies in region {slot.region.name}, but is of parameter {slot.parameter}"
    itemsize = slot.dtype.itemsize
    steps = (slot.offset, *(slot.strides or ()))
    if itemsize > 1 and any(step % itemsize for step in steps):
        return f"is not aligned to its elements of {itemsize} bytes"
    problem = packing_problem(slot)
    if problem:
        return problem
    low, high = reach(slot)
    if low < 0 or high > region_bytes:
        return f"covers bytes {low:,} to {high:,} of a region of {region_bytes:,} bytes"
    return ""


def _shape_problem(slot: Slot, limits: Limits) -> str:
    if len(slot.shape) > MAX_RANK:
        return f"has {len(slot.shape)} dimensions, more than {MAX_RANK}"
    if min(slot.shape, default=0) < 0 or volume(slot) > MAX_DIMENSION:
        return f"has shape {slot.shape}"
    # Broadcast slots have more elements than bytes: reading them takes as long as if they had not.
    if volume(slot) > limits.memory_bytes:
        return f"has elements of {volume(slot):,} bytes, more than {limits.memory_bytes:,}"
    if slot.strides is not None and len(slot.strides) != len(slot.shape):
        return f"has {len(slot.strides)} strides for {len(slot.shape)} dimensions"
    return ""


def volume(slot: Slot) -> int:
    """Bytes of all elements, where a dimension of zero does not hide the others."""
    return prod(size for size in slot.shape if size) * slot.dtype.itemsize


def reach(slot: Slot) -> tuple[int, int]:
    """First byte and end of what a slot covers."""
    itemsize = slot.dtype.itemsize
    if slot.packing is not Packing.NONE:
        return slot.offset, slot.offset + packed_bytes(slot.shape, slot.packing)
    if slot.strides is None or 0 in slot.shape:
        return slot.offset, slot.offset + prod(slot.shape) * itemsize
    spans = [(size - 1) * step for size, step in zip(slot.shape, slot.strides, strict=True)]
    low = slot.offset + sum(span for span in spans if span < 0)
    return low, slot.offset + sum(span for span in spans if span > 0) + itemsize


# Number of items and depth of a block, with all calls written out.
_Extent: TypeAlias = tuple[int, int]
_RUNNING: Final = (-1, -1)  # of a graph that is being measured: one that calls itself is found so


@frozen
class _Need:
    """A program's use of a parameter: up to which byte, aligned to what, and whether it writes."""

    reach: int = 0
    alignment: int = 1
    written: bool = False

    def joined(self, other: _Need) -> _Need:
        """A need that covers both."""
        alignment = lcm(self.alignment, other.alignment)
        return _Need(max(self.reach, other.reach), alignment, self.written or other.written)


class _Programs:
    """Walks all programs, each once; where it is called, its extent is added."""

    def __init__(self, image: ProgramImage, limits: Limits) -> None:
        self._image = image
        self._limits = limits
        self._slot_count = len(image.slots)
        self._constants = {
            number for number, slot in enumerate(image.slots) if slot.region is Region.CONSTANT
        }
        self._has_parameters = any(slot.region is Region.PARAMETER for slot in image.slots)
        self._extents: dict[str, _Extent] = {}
        self._needs: dict[str, dict[int, _Need]] = {}
        self._current: dict[int, _Need] = {}  # needs of the program that is being walked
        self._called: set[str] = set()

    def check(self) -> None:
        """All programs."""
        for name in self._image.programs:
            self._program(name, 0)
        for name, needs in self._needs.items():
            if needs and name not in self._called:
                raise ValueError(f"program {name!r:.80} has parameters, but nothing calls it")

    def _program(self, name: str, level: int) -> _Extent:
        if name not in self._image.programs:
            raise ValueError(f"program {name!r:.80} is called but does not exist")
        if name not in self._extents:
            self._extents[name] = _RUNNING
            outer, self._current = self._current, {}
            self._extents[name] = self._block(self._image.programs[name], level)
            self._needs[name], self._current = self._current, outer
        extent = self._extents[name]
        if extent == _RUNNING:
            raise ValueError(f"program {name!r:.80} calls itself")
        self._check_depth(level + extent[1])
        return extent

    def _check_depth(self, depth: int) -> None:
        if depth > self._limits.depth:
            raise ValueError("blocks and calls are nested too deeply")

    def _block(self, block: Block, level: int) -> _Extent:
        self._check_depth(level)  # on the way down: deeper nesting would end this walk itself
        items, depth = len(block), 0
        for item in block:
            if isinstance(item, Instruction):
                self._instruction(item)
                continue
            inner_items, inner_depth = self._nested(item, level + 1)
            items += inner_items
            depth = max(depth, inner_depth + 1)
        if items > self._limits.expanded_items:
            raise ValueError(f"a program has more than {self._limits.expanded_items:,} items")
        return items, depth

    def _nested(self, item: RepeatBlock | IfBlock | CallBlock, level: int) -> _Extent:
        if isinstance(item, CallBlock):
            extent = self._program(item.program, level)
            self._call(item)
            return extent
        if isinstance(item, RepeatBlock):
            self._repeat(item)
            return self._block(item.body, level)
        self._scalar(item.condition_slot, DType.BOOL, item.name)
        then_items, then_depth = self._block(item.then_body, level)
        else_items, else_depth = self._block(item.else_body, level)
        return then_items + else_items, max(then_depth, else_depth)

    def _call(self, item: CallBlock) -> None:
        self._called.add(item.program)
        name = item.program
        if item.arguments and not -1 <= min(item.arguments) <= max(item.arguments) < (
            self._slot_count
        ):
            raise ValueError(f"a call of {name!r:.80} refers to a slot that does not exist")
        for slot in (self._image.slots[number] for number in item.arguments if number >= 0):
            if slot.region is Region.PARAMETER:  # handed on, whether it is used or not
                self._use_parameter(slot.parameter, _Need())
        for number, need in self._needs[name].items():
            if number >= len(item.arguments) or item.arguments[number] < 0:
                raise ValueError(f"program {name!r:.80} is called without its parameter {number}")
            self._argument(self._image.slots[item.arguments[number]], need, f"{name!r:.80}")

    def _argument(self, slot: Slot, need: _Need, name: str) -> None:
        size = prod(slot.shape) * slot.dtype.itemsize
        plain = slot.strides is None and slot.packing is Packing.NONE
        if not plain or size < need.reach or slot.offset % need.alignment:
            raise ValueError(f"a call of {name} hands over memory that does not fit")
        if need.written and slot.region is Region.CONSTANT:
            raise ValueError(f"a call of {name} hands over a constant that is written to")
        if slot.region is Region.PARAMETER:
            outer = replace(need, reach=slot.offset + need.reach)
            self._use_parameter(slot.parameter, outer)

    def _use(self, number: int, *, written: bool = False) -> None:
        """Note what a slot needs of a parameter, if it lies in one."""
        slot = self._image.slots[number] if number >= 0 else None
        if slot is not None and slot.region is Region.PARAMETER:
            itemsize = slot.dtype.itemsize
            self._use_parameter(slot.parameter, _Need(reach(slot)[1], itemsize, written))

    def _use_parameter(self, number: int, need: _Need) -> None:
        self._current[number] = self._current.get(number, _Need()).joined(need)

    def _instruction(self, item: Instruction) -> None:
        if not item.opcode:
            raise ValueError(f"instruction {item.name!r:.80} has no opcode")
        self._operands(item.inputs, item)
        self._operands(item.outputs, item)
        if not self._constants.isdisjoint(item.outputs):
            raise ValueError(f"{item.opcode} {item.name!r:.80} writes to a constant")
        if self._has_parameters:
            for number in item.inputs:
                self._use(number)
            for number in item.outputs:
                self._use(number, written=True)

    def _operands(self, operands: Sequence[int], item: Instruction) -> None:
        if operands and not (min(operands) >= -1 and max(operands) < self._slot_count):
            raise ValueError(
                f"{item.opcode:.40} {item.name!r:.80} refers to a slot that does not exist"
            )

    def _repeat(self, block: RepeatBlock) -> None:
        if block.count < -1:
            raise ValueError(f"loop {block.name!r:.80} has {block.count} iterations")
        if block.count_slot != -1:
            self._scalar(block.count_slot, DType.INT64, block.name)
        if block.condition_slot != -1:
            self._scalar(block.condition_slot, DType.BOOL, block.name)
        if block.counter_slot != -1:
            self._scalar(block.counter_slot, DType.INT64, block.name)
            if block.counter_slot in self._constants:
                raise ValueError(f"loop {block.name!r:.80} stores its counter in a constant")
            self._use(block.counter_slot, written=True)

    def _scalar(self, number: int, dtype: DType, name: str) -> None:
        if not 0 <= number < self._slot_count:
            raise ValueError(f"block {name!r:.80} refers to a slot that does not exist")
        slot = self._image.slots[number]
        if slot.dtype is not dtype or prod(slot.shape) != 1:
            raise ValueError(
                f"the condition or count of block {name!r:.80} must be a scalar of type {dtype}"
            )
        self._use(number)
