"""The text form of a program: stable, for people and for golden files."""

from __future__ import annotations

from collections.abc import Iterator

from popc_runtime.format.program import (
    Block,
    CallBlock,
    IfBlock,
    Instruction,
    ProgramImage,
    RepeatBlock,
    Slot,
)

__all__ = ["format_attribute", "format_program", "instructions_of"]

_SHOWN_ITEMS = 8  # of an attribute that is a list: perms and pads of four axes are printed whole


def instructions_of(block: Block) -> list[Instruction]:
    """All instructions of a block and the blocks nested in it, in order."""
    found: list[Instruction] = []
    for item in block:
        if isinstance(item, Instruction):
            found.append(item)
        elif isinstance(item, RepeatBlock):
            found.extend(instructions_of(item.body))
        elif isinstance(item, IfBlock):
            found.extend(instructions_of(item.then_body))
            found.extend(instructions_of(item.else_body))
    return found


def format_program(image: ProgramImage) -> str:
    """Regions, then every program with one instruction a line; blocks are indented."""
    lines = [
        (
            f"arena {image.arena_bytes:,} bytes, constants {image.constant_bytes:,} bytes, "
            f"state {image.state_bytes:,} bytes, {_remote(image)}{len(image.slots):,} slots"
        )
    ]
    for name, block in image.programs.items():
        lines.append(f"program {name} {{")
        lines.extend(_block_lines(image, block, "  "))
        lines.append("}")
    return "\n".join(lines) + "\n"


def _remote(image: ProgramImage) -> str:
    return f"remote {image.remote_bytes:,} bytes, " if image.remote_bytes else ""


def _block_lines(image: ProgramImage, block: Block, indent: str) -> Iterator[str]:
    for item in block:
        if isinstance(item, Instruction):
            yield indent + _instruction(image, item)
        elif isinstance(item, CallBlock):
            yield indent + _call(image, item)
        elif isinstance(item, RepeatBlock):
            yield f"{indent}repeat {_repeat_terms(image, item)} {{  # {item.name}"
            yield from _block_lines(image, item.body, indent + "  ")
            yield f"{indent}}}"
        else:
            yield f"{indent}if {_slot(image, item.condition_slot)} {{  # {item.name}"
            yield from _block_lines(image, item.then_body, indent + "  ")
            yield f"{indent}}} else {{"
            yield from _block_lines(image, item.else_body, indent + "  ")
            yield f"{indent}}}"


def _repeat_terms(image: ProgramImage, item: RepeatBlock) -> str:
    terms: list[str] = []
    if item.count >= 0:
        terms.append(f"{item.count} times")
    if item.count_slot >= 0:
        terms.append(f"{_slot(image, item.count_slot)} times")
    if item.condition_slot >= 0:
        terms.append(f"while {_slot(image, item.condition_slot)}")
    if item.counter_slot >= 0:
        terms.append(f"counting {_slot(image, item.counter_slot)}")
    return ", ".join(terms) or "for ever"


def _instruction(image: ProgramImage, item: Instruction) -> str:
    results = ", ".join(_slot(image, index) for index in item.outputs)
    operands = ", ".join(_slot(image, index) for index in item.inputs)
    attributes = "".join(
        f" {key}={format_attribute(item.attributes[key])}" for key in sorted(item.attributes)
    )
    arrow = " = " if results else ""
    return f"{results}{arrow}{item.opcode}({operands}){attributes}  # {item.name}"


def _call(image: ProgramImage, item: CallBlock) -> str:
    arguments = ", ".join(_slot(image, index) for index in item.arguments)
    labels = "".join(f" {label!r}" for label in item.labels)
    handed_over = f"({arguments}){labels}  # {item.name}" if item.arguments else ""
    return f"call {item.program}{handed_over}"


def _slot(image: ProgramImage, index: int) -> str:
    if index < 0:
        return "-"
    slot: Slot = image.slots[index]
    strides = "" if slot.strides is None else f" strides {list(slot.strides)}"
    shape = ",".join(map(str, slot.shape))
    number = f" {slot.parameter}" if slot.parameter >= 0 else ""
    where = f"{slot.region.name.lower()}{number}"
    panels = f" panels of {slot.packing.name.lower()}" if slot.packing else ""
    return f"{where}[{slot.offset}]:{slot.dtype}[{shape}]{strides}{panels}"


def format_attribute(value: object) -> str:
    """A value as Python writes it; long lists are cut."""
    if not isinstance(value, tuple):
        return repr(value)
    items = [repr(item) for item in value[:_SHOWN_ITEMS]]
    if len(value) > _SHOWN_ITEMS:
        items.append(f"... {len(value) - _SHOWN_ITEMS} more")
    return f"[{', '.join(items)}]"
