"""Weights in the order in which native kernels read them: see `popc_runtime.format.panels`.

What a constant is stays the same for every stage, for costs and for the IPU's memory: only the
bytes in the file, and in the memory of whoever loads it, lie in another order.  A constant is
stored in panels if nobody reads it but instructions whose kernels would pack it otherwise, each
time that a program is loaded.  The runtime unpacks it for all others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final, TypeAlias

import numpy as np

from popc.memory import ConstantBlock
from popc.schedule import aligned
from popc_runtime.format import (
    Array,
    Block,
    CallBlock,
    DType,
    IfBlock,
    Instruction,
    Packing,
    ProgramImage,
    Region,
    RepeatBlock,
    Slot,
    pack_panels,
)

__all__ = ["store_in_panels"]

_RIGHT: Final = 1  # the operand
_MOST_AXES: Final = 3  # of convolutions that have native kernels


def store_in_panels(
    image: ProgramImage, constants: Sequence[ConstantBlock]
) -> tuple[ProgramImage, tuple[ConstantBlock, ...]]:
    """``image`` and its constants, some of them in panels; the others as they are."""
    chosen = _chosen(image, constants)
    if not chosen:
        return image, tuple(constants)
    blocks: list[ConstantBlock] = []
    size = 0
    for number, block in enumerate(constants):
        data = block.data
        if number in chosen:
            slot, packing = chosen[number]
            data = pack_panels(_elements(image.slots[slot], block), packing)
        blocks.append(ConstantBlock(size, data))
        size = aligned(size + data.nbytes)
    moves = [new.offset - old.offset for new, old in zip(blocks, constants, strict=True)]
    packed = dict(chosen.values())
    starts = [block.offset for block in constants]
    slots = tuple(
        _moved(slot, starts, moves, packed.get(number, Packing.NONE))
        for number, slot in enumerate(image.slots)
    )
    return replace(image, slots=slots, constant_bytes=size), tuple(blocks)


def _moved(slot: Slot, starts: Sequence[int], moves: Sequence[int], packing: Packing) -> Slot:
    if slot.region is not Region.CONSTANT:
        return slot
    block = bisect_right(starts, slot.offset) - 1
    if packing is not Packing.NONE:
        return replace(slot, offset=starts[block] + moves[block], strides=None, packing=packing)
    return replace(slot, offset=slot.offset + moves[block])


def _elements(slot: Slot, block: ConstantBlock) -> Array:
    """What a slot of ``block`` shows."""
    memory = block.data.reshape(-1).view(np.uint8)
    return np.ndarray(slot.shape, np.float32, memory, slot.offset - block.offset, slot.strides)


def _chosen(
    image: ProgramImage, constants: Sequence[ConstantBlock]
) -> dict[int, tuple[int, Packing]]:
    """Of the constants to be stored in panels, by number: the only slot of each, and which."""
    starts = [block.offset for block in constants]
    slots_of: defaultdict[int, list[int]] = defaultdict(list)
    for number, slot in enumerate(image.slots):
        if slot.region is Region.CONSTANT and 0 not in slot.shape:
            slots_of[bisect_right(starts, slot.offset) - 1].append(number)
    wishes = _wishes(image)
    found: dict[int, tuple[int, Packing]] = {}
    for block, slots in slots_of.items():
        wish = wishes.get(slots[0], Packing.NONE)
        if len(slots) == 1 and wish is not Packing.NONE:
            found[block] = (slots[0], wish)
    return found


def _wishes(image: ProgramImage) -> dict[int, Packing]:
    """The panels that all readers of a slot want, by its number; NONE if they disagree."""
    found: dict[int, Packing] = {}
    for program in image.programs.values():
        for slot, packing in _reads(image, program):
            found[slot] = packing if found.get(slot, packing) is packing else Packing.NONE
    return found


def _reads(image: ProgramImage, block: Block) -> Iterator[tuple[int, Packing]]:
    """Slots that are read, each with the panels that the reader wants."""
    for item in block:
        if isinstance(item, Instruction):
            for position, slot in enumerate(item.inputs):
                wanted = position == _RIGHT and slot >= 0
                yield slot, _wish(image, item) if wanted else Packing.NONE
        elif isinstance(item, CallBlock):
            yield from ((slot, Packing.NONE) for slot in item.arguments)
        elif isinstance(item, RepeatBlock):
            yield from _reads(image, item.body)
        else:
            assert isinstance(item, IfBlock), item
            yield from _reads(image, (*item.then_body, *item.else_body))


def _wish(image: ProgramImage, item: Instruction) -> Packing:
    """The panels in which an instruction wants its second operand."""
    rule = _RULES.get(item.opcode)
    operands = [image.slots[slot] for slot in (*item.inputs, *item.outputs) if slot >= 0]
    if rule is None or any(slot.dtype is not DType.FLOAT32 for slot in operands):
        return Packing.NONE
    if item.attributes.get("partials", "float") != "float" or 0 in operands[0].shape:
        return Packing.NONE
    return rule(item, operands)


def _wish_of_matmul(item: Instruction, operands: Sequence[Slot]) -> Packing:
    del item
    left, right = (len(slot.shape) for slot in operands[:2])
    return Packing.COLUMNS if left >= 2 and right == 2 else Packing.NONE


def _wish_of_gemm(item: Instruction, operands: Sequence[Slot]) -> Packing:
    del operands  # they are matrices
    scaled = len(item.inputs) > 2 and item.inputs[2] >= 0 and item.attributes.get("beta", 1) != 1
    if scaled or item.attributes.get("alpha", 1) != 1:
        return Packing.NONE
    return Packing.ROWS if item.attributes.get("transB", 0) else Packing.COLUMNS


def _wish_of_conv(item: Instruction, operands: Sequence[Slot]) -> Packing:
    """Those of a product, which a convolution of single pixels is."""
    pads = item.attributes.get("pads", ())
    plain = operands[1].strides is None and all(map(_is_contiguous, operands))
    single = all(prod(slot.shape[2:]) == 1 for slot in operands[:2])
    padded = isinstance(pads, tuple) and any(pads)
    if not plain or not single or padded or item.attributes.get("group", 1) != 1:
        return Packing.NONE
    return Packing.ROWS if 3 <= len(operands[0].shape) <= _MOST_AXES + 2 else Packing.NONE


def _is_contiguous(slot: Slot) -> bool:
    """Whether elements lie one after another; strides of dimensions of 1 say nothing."""
    expected = slot.dtype.itemsize
    for dim, step in reversed(list(zip(slot.shape, slot.strides or (), strict=False))):
        if dim != 1 and step != expected:
            return False
        expected *= dim
    return True


_Rule: TypeAlias = Callable[[Instruction, Sequence[Slot]], Packing]
_RULES: Final[Mapping[str, _Rule]] = {
    "Conv": _wish_of_conv,
    "Gemm": _wish_of_gemm,
    "MatMul": _wish_of_matmul,
}
