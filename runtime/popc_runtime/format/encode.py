"""Program images to bytes.  `columns` describes the layout, `decode` reads it back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from popc_runtime.format.columns import (
    DTYPES,
    LATER_COLUMNS,
    PROGRAM_COLUMNS,
    AttributeKind,
    ItemKind,
)
from popc_runtime.format.program import (
    Attribute,
    Attributes,
    Block,
    CallBlock,
    IfBlock,
    Instruction,
    Item,
    Packing,
    ProgramImage,
    Region,
    RepeatBlock,
    Slot,
)
from popc_runtime.format.serialization import Packable, pack, pack_column
from popc_runtime.format.validate import validate_image

__all__ = ["encode_program", "oldest_reader"]

_INT64: Final = range(-(1 << 63), 1 << 63)
_INSTRUCTION: Final = int(ItemKind.INSTRUCTION)
_DTYPE_NUMBERS: Final = {dtype: number for number, dtype in enumerate(DTYPES)}


def encode_program(image: ProgramImage) -> bytes:
    """The canonical bytes of ``image``: equal images give equal bytes.

    Raises:
        ValueError: the image is not valid, so that no reader would accept it.
    """
    validate_image(image)
    encoder = _Encoder(packed=_has_panels(image))
    for slot in image.slots:
        encoder.slot(slot)
    if any(map(_has_arguments, image.programs.values())):
        encoder.expect_arguments()
    for name in sorted(image.programs):
        encoder.program(name, image.programs[name])
    return pack({**encoder.fields(), "memory": _memory(image)})


def oldest_reader(image: ProgramImage) -> int:
    """The first minor version of the format whose readers understand all of ``image``."""
    if any(slot.dtype.is_float8 for slot in image.slots):
        return 8
    if _has_panels(image):
        return 2
    later = (Region.PARAMETER, Region.REMOTE)
    return int(image.remote_bytes > 0 or any(slot.region in later for slot in image.slots))


def _has_panels(image: ProgramImage) -> bool:
    return any(slot.packing is not Packing.NONE for slot in image.slots)


def _memory(image: ProgramImage) -> Packable:
    sizes: list[Packable] = [image.arena_bytes, image.constant_bytes, image.state_bytes]
    return [*sizes, image.remote_bytes] if image.remote_bytes else sizes


def _has_arguments(block: Block) -> bool:
    """True if a call in ``block`` hands anything over."""
    for item in block:
        if isinstance(item, CallBlock):
            if item != CallBlock(item.program):
                return True
        elif isinstance(item, RepeatBlock):
            if _has_arguments(item.body):
                return True
        elif isinstance(item, IfBlock) and _has_arguments((*item.then_body, *item.else_body)):
            return True
    return False


class _Encoder:
    """Fills the columns; gives equal strings, attribute values and attribute sets one number."""

    def __init__(self, *, packed: bool) -> None:
        self._packed = packed  # whether constants have entries for their packing
        self._columns: dict[str, list[int]] = {
            name: [] for name in (*PROGRAM_COLUMNS, *LATER_COLUMNS)
        }
        self._has_arguments = False
        self._strings: dict[str, int] = {}
        self._values: dict[str, int] = {}
        self._sets: dict[tuple[tuple[int, int], ...], int] = {}

    def fields(self) -> dict[str, Packable]:
        """Everything encoded so far."""
        texts = [text.encode() for text in self._strings]
        self._columns["string_bytes"] = [len(text) for text in texts]
        return {
            **{
                name: pack_column(values)
                for name, values in self._columns.items()
                if values or name in PROGRAM_COLUMNS
            },
            "text": b"".join(texts),
        }

    def slot(self, slot: Slot) -> None:
        """One slot."""
        self._add("slot_region", slot.region)
        self._add("slot_dtype", _DTYPE_NUMBERS[slot.dtype])
        self._add("slot_offset", slot.offset)
        self._add("slot_rank", len(slot.shape))
        self._add("slot_strided", slot.strides is not None)
        self._columns["slot_dimension"].extend(slot.shape)
        self._columns["slot_stride"].extend(slot.strides or ())
        if slot.region is Region.PARAMETER:
            self._add("slot_parameter", slot.parameter)
        if slot.region is Region.CONSTANT and self._packed:
            self._add("slot_packing", slot.packing)

    def expect_arguments(self) -> None:
        """From now on, note what calls hand over."""
        self._has_arguments = True

    def program(self, name: str, block: Block) -> None:
        """One program."""
        self._add("program_name", self._string(name))
        self._add("program_items", len(block))
        self._block(block)

    def _block(self, block: Block) -> None:
        for item in block:
            self._item(item)

    def _item(self, item: Item) -> None:
        if isinstance(item, Instruction):
            self._columns["item_kind"].append(_INSTRUCTION)
            self._instruction(item)
        elif isinstance(item, RepeatBlock):
            self._add("item_kind", ItemKind.REPEAT)
            self._repeat(item)
        elif isinstance(item, IfBlock):
            self._add("item_kind", ItemKind.IF)
            self._if(item)
        else:
            self._add("item_kind", ItemKind.CALL)
            self._call(item)

    def _instruction(self, item: Instruction) -> None:
        columns, strings = self._columns, self._strings
        columns["op_code"].append(strings.setdefault(item.opcode, len(strings)))
        columns["op_name"].append(strings.setdefault(item.name, len(strings)))
        columns["op_attributes"].append(self._attribute_set(item.attributes))
        columns["op_inputs"].append(len(item.inputs))
        columns["op_outputs"].append(len(item.outputs))
        columns["op_input"].extend(item.inputs)
        columns["op_output"].extend(item.outputs)

    def _repeat(self, item: RepeatBlock) -> None:
        self._add("repeat_items", len(item.body))
        self._add("repeat_count", item.count)
        self._add("repeat_count_slot", item.count_slot)
        self._add("repeat_condition_slot", item.condition_slot)
        self._add("repeat_counter_slot", item.counter_slot)
        self._add("repeat_name", self._string(item.name))
        self._block(item.body)

    def _if(self, item: IfBlock) -> None:
        self._add("if_condition_slot", item.condition_slot)
        self._add("if_then_items", len(item.then_body))
        self._add("if_else_items", len(item.else_body))
        self._add("if_name", self._string(item.name))
        self._block(item.then_body)
        self._block(item.else_body)

    def _call(self, item: CallBlock) -> None:
        self._add("call_program", self._string(item.program))
        if self._has_arguments:
            self._add("call_arguments", len(item.arguments))
            self._columns["call_argument"].extend(item.arguments)
            self._add("call_labels", len(item.labels))
            self._columns["call_label"].extend(map(self._string, item.labels))
            self._add("call_name", self._string(item.name))

    def _add(self, column: str, value: int) -> None:
        self._columns[column].append(int(value))

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def _attribute_set(self, attributes: Attributes) -> int:
        if not attributes and () in self._sets:
            return self._sets[()]
        # Sorted names of one attribute, or of none, are these.
        items = sorted(attributes.items()) if len(attributes) > 1 else attributes.items()
        key = tuple([(self._string(name), self._value(value)) for name, value in items])
        if key not in self._sets:
            self._sets[key] = len(self._sets)
            self._add("set_count", len(key))
            self._columns["set_key"].extend(name for name, _ in key)
            self._columns["set_value"].extend(value for _, value in key)
        return self._sets[key]

    def _value(self, value: Attribute) -> int:
        # repr tells 0.0 from -0.0 and from 0, and gives back every bit of a float.
        key = repr(value)
        known = self._values.get(key)
        if known is None:
            known = self._values[key] = len(self._values)
            kind = _kind_of(value)
            elements: tuple[int | float | str, ...]
            elements = value if isinstance(value, tuple) else (value,)
            self._add("value_kind", kind)
            self._add("value_count", len(elements))
            self._elements(kind, elements)
        return known

    def _elements(self, kind: AttributeKind, elements: Iterable[int | float | str]) -> None:
        if kind in {AttributeKind.INTEGER, AttributeKind.INTEGERS}:
            self._columns["value_integer"].extend(int(item) for item in elements)
        elif kind in {AttributeKind.FLOAT, AttributeKind.FLOATS}:
            bits = np.array([float(item) for item in elements], "<f8").view("<i8")
            self._columns["value_float"].extend(bits.tolist())
        else:  # text, or integers written as text
            self._columns["value_text"].extend(self._string(str(item)) for item in elements)


def _kind_of(value: Attribute) -> AttributeKind:
    """The kind of an attribute value; a list of integers and floats is one of floats."""
    elements = value if isinstance(value, tuple) else (value,)
    plural = isinstance(value, tuple)
    if all(isinstance(item, int) for item in elements):
        if all(int(item) in _INT64 for item in elements):
            return AttributeKind.INTEGERS if plural else AttributeKind.INTEGER
        return AttributeKind.WIDES if plural else AttributeKind.WIDE
    if all(isinstance(item, str) for item in elements):
        return AttributeKind.TEXTS if plural else AttributeKind.TEXT
    return AttributeKind.FLOATS if plural else AttributeKind.FLOAT
