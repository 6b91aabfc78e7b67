"""Calls written out: every program with the memory that it runs in.

A program that is called is stored once.  Before it is bound, every call is replaced by the
instructions of the program on what this call hands over: kernels know their operands when they are
bound, so that a call costs nothing on a run, and constants that are handed over can be packed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from popc_runtime.format import (
    Attributes,
    Block,
    CallBlock,
    IfBlock,
    Instruction,
    Item,
    ProgramImage,
    Region,
    RepeatBlock,
    Slot,
    fill_labels,
    result_names,
)
from popc_runtime.ground.frozen import replace

__all__ = ["write_out"]


def write_out(image: ProgramImage) -> ProgramImage:
    """``image`` with no slot in a parameter; the same object if it has none anyway.

    Programs with parameters are left out: only others can call them.  ``image`` has been validated.
    """
    if all(slot.region is not Region.PARAMETER for slot in image.slots):
        return image
    writer = _Writer(image)
    programs = {
        name: writer.block(block)
        for name, block in image.programs.items()
        if not _takes_parameters(image, block)
    }
    return replace(image, slots=tuple(writer.slots), programs=programs)


def _takes_parameters(image: ProgramImage, block: Block) -> bool:
    """True if a program uses what a call has to hand over."""
    return any(
        number >= 0 and image.slots[number].region is Region.PARAMETER
        for number in _operands(block)
    )


def _operands(block: Block) -> Iterator[int]:
    """The slots that a block uses, calls aside from what they hand over."""
    for item in block:
        if isinstance(item, Instruction):
            yield from (*item.inputs, *item.outputs)
        elif isinstance(item, CallBlock):
            yield from item.arguments
        elif isinstance(item, RepeatBlock):
            yield from (item.count_slot, item.condition_slot, item.counter_slot)
            yield from _operands(item.body)
        else:
            yield item.condition_slot
            yield from _operands((*item.then_body, *item.else_body))


class _Frame:
    """The things handed over to a program: memory, and words for the names of instructions."""

    def __init__(self, arguments: Sequence[Slot | None] = (), labels: Sequence[str] = ()) -> None:
        self.arguments = arguments
        self._labels = labels
        self.numbers: dict[int, int] = {}  # of slots: in the image, written out

    def name(self, pattern: str) -> str:
        """``pattern`` with labels in the places marked for them."""
        return fill_labels(pattern, self._labels) if self._labels else pattern

    def named(self, attributes: Attributes) -> Attributes:
        """``attributes`` with labels in the names of results, if it has such."""
        names = result_names(attributes)
        if not self._labels or not names:
            return attributes
        return {**attributes, "results": tuple(map(self.name, names))}


class _Writer:
    """Rebuilds blocks; equal slots have one number."""

    def __init__(self, image: ProgramImage) -> None:
        self._image = image
        self._numbers: dict[Slot, int] = {}

    @property
    def slots(self) -> Iterator[Slot]:
        """All slots, by their new numbers."""
        return iter(self._numbers)

    def block(self, block: Block, frame: _Frame | None = None) -> Block:
        """``block`` with all calls that hand something over written out."""
        frame = frame or _Frame()
        items: list[Item] = []
        for item in block:
            if isinstance(item, CallBlock):
                items.extend(self._call(item, frame))
            else:
                items.append(self._item(item, frame))
        return tuple(items)

    def _item(self, item: Instruction | RepeatBlock | IfBlock, frame: _Frame) -> Item:
        name = frame.name(item.name)
        if isinstance(item, Instruction):
            inputs = tuple(self._slot(number, frame) for number in item.inputs)
            outputs = tuple(self._slot(number, frame) for number in item.outputs)
            attributes = frame.named(item.attributes)
            return Instruction(item.opcode, inputs, outputs, attributes, name)
        if isinstance(item, RepeatBlock):
            return RepeatBlock(
                self.block(item.body, frame),
                item.count,
                self._slot(item.count_slot, frame),
                self._slot(item.condition_slot, frame),
                self._slot(item.counter_slot, frame),
                name,
            )
        return IfBlock(
            self._slot(item.condition_slot, frame),
            self.block(item.then_body, frame),
            self.block(item.else_body, frame),
            name,
        )

    def _call(self, item: CallBlock, frame: _Frame) -> Block:
        program = self._image.programs[item.program]
        if not item.arguments and not _takes_parameters(self._image, program):
            return (item,)
        arguments = [
            None if number < 0 else self._resolved(self._image.slots[number], frame)
            for number in item.arguments
        ]
        labels = [frame.name(label) for label in item.labels]
        return self.block(program, _Frame(arguments, labels))

    def _slot(self, number: int, frame: _Frame) -> int:
        """The new number of a slot; -1 stays what it is."""
        if number < 0:
            return number
        if number not in frame.numbers:
            slot = self._resolved(self._image.slots[number], frame)
            frame.numbers[number] = self._numbers.setdefault(slot, len(self._numbers))
        return frame.numbers[number]

    def _resolved(self, slot: Slot, frame: _Frame) -> Slot:
        if slot.region is not Region.PARAMETER:
            return slot
        argument = frame.arguments[slot.parameter]
        assert argument is not None, f"parameter {slot.parameter} is missing"
        return replace(
            argument,
            offset=argument.offset + slot.offset,
            dtype=slot.dtype,
            shape=slot.shape,
            strides=slot.strides,
        )
