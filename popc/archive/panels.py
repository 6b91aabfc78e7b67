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
from typing import Final

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
    Panels,
    Piece,
    ProgramImage,
    Region,
    RepeatBlock,
    Slot,
)
from popc_runtime.ground.frozen import replace
from popc_runtime.kernels.core.operands import Operands
from popc_runtime.native.views import View

__all__ = ["store_in_panels"]

_RIGHT: Final = 1  # the operand


def store_in_panels(
    image: ProgramImage, constants: Sequence[ConstantBlock]
) -> tuple[ProgramImage, tuple[Piece, ...]]:
    """``image`` and its constants, some of them in panels; the others as they are."""
    chosen = _chosen(image, constants)
    if not chosen:
        return image, tuple(Piece(block.offset, block.data) for block in constants)
    pieces: list[Piece] = []
    size = 0
    for number, block in enumerate(constants):
        data: Array | Panels = block.data
        if number in chosen:
            slot, packing = chosen[number]
            data = Panels(_elements(image.slots[slot], block), packing)
        pieces.append(Piece(size, data))
        size = aligned(size + data.nbytes)
    moves = [new.offset - old.offset for new, old in zip(pieces, constants, strict=True)]
    packed = dict(chosen.values())
    starts = [block.offset for block in constants]
    slots = tuple(
        _moved(slot, starts, moves, packed.get(number, Packing.NONE))
        for number, slot in enumerate(image.slots)
    )
    return replace(image, slots=slots, constant_bytes=size), tuple(pieces)


def _moved(slot: Slot, starts: Sequence[int], moves: Sequence[int], packing: Packing) -> Slot:
    if slot.region is not Region.CONSTANT:
        return slot
    block = bisect_right(starts, slot.offset) - 1
    if packing is not Packing.NONE:
        return replace(slot, offset=starts[block] + moves[block], strides=None, packing=packing)
    return replace(slot, offset=slot.offset + moves[block])


def _elements(slot: Slot, block: ConstantBlock) -> Array:
    """The elements that a slot of ``block`` shows."""
    memory = block.data.reshape(-1).view(np.uint8)
    return np.ndarray(slot.shape, np.float32, memory, slot.offset - block.offset, slot.strides)


def _chosen(
    image: ProgramImage, constants: Sequence[ConstantBlock]
) -> dict[int, tuple[int, Packing]]:
    """The constants to be stored in panels, by number: the only slot of each, and its packing."""
    starts = [block.offset for block in constants]
    slots_of: defaultdict[int, list[int]] = defaultdict(list)
    for number, slot in enumerate(image.slots):
        if slot.region is Region.CONSTANT and 0 not in slot.shape:
            slots_of[bisect_right(starts, slot.offset) - 1].append(number)
    wanted = _wanted_packings(image)
    found: dict[int, tuple[int, Packing]] = {}
    for block, slots in slots_of.items():
        packing = wanted.get(slots[0], Packing.NONE)
        if len(slots) == 1 and packing is not Packing.NONE:
            found[block] = (slots[0], packing)
    return found


def _wanted_packings(image: ProgramImage) -> dict[int, Packing]:
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
    if rule is None or item.attributes.get("partials", "float") != "float":
        return Packing.NONE
    operands = _operands(image, item)
    dtypes = (*operands.input_dtypes, *operands.output_dtypes)
    if any(dtype not in (None, DType.FLOAT32) for dtype in dtypes) or not operands.input(0).size:
        return Packing.NONE
    return rule(operands)


def _operands(image: ProgramImage, item: Instruction) -> Operands[View]:
    """The operands of the runtime's encoders, but nowhere in memory."""
    inputs, outputs = (
        tuple(image.slots[slot] if slot >= 0 else None for slot in some)
        for some in (item.inputs, item.outputs)
    )
    return Operands(
        tuple(map(_view, inputs)),
        tuple(map(_view, outputs)),
        tuple(None if slot is None else slot.dtype for slot in inputs),
        tuple(None if slot is None else slot.dtype for slot in outputs),
        item.attributes,
        tuple(slot is not None and slot.region is Region.CONSTANT for slot in inputs),
    )


def _view(slot: Slot | None) -> View | None:
    return None if slot is None else View(0, slot.shape, slot.dtype.stored, slot.strides)


def _wish_of_matmul(product: Operands[View]) -> Packing:
    left, right = product.input(0), product.input(_RIGHT)
    return Packing.COLUMNS if left.ndim >= 2 and right.ndim == 2 else Packing.NONE


def _wish_of_gemm(product: Operands[View]) -> Packing:
    scaled = product.optional(2) is not None and product.number("beta", 1.0) != 1
    if scaled or product.number("alpha", 1.0) != 1:
        return Packing.NONE
    return Packing.ROWS if product.integer("transB", 0) else Packing.COLUMNS


def _wish_of_conv(conv: Operands[View]) -> Packing:
    from popc_runtime.native.encoders.conv import packing_of_weights

    return packing_of_weights(conv) if conv.input(_RIGHT).is_contiguous else Packing.NONE


_RULES: Final[Mapping[str, Callable[[Operands[View]], Packing]]] = {
    "Conv": _wish_of_conv,
    "Gemm": _wish_of_gemm,
    "MatMul": _wish_of_matmul,
}
