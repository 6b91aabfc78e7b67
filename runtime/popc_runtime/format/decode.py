"""Bytes to program images, checked before anything is built from them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

from popc_runtime.format.columns import (
    DTYPES,
    LATER_COLUMNS,
    PROGRAM_COLUMNS,
    AttributeKind,
    ItemKind,
)
from popc_runtime.format.limits import DEFAULT_LIMITS, MAX_RANK, Limits
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
from popc_runtime.format.serialization import Columns, Fields, corrupt, unpack
from popc_runtime.format.validate import validate_image
from popc_runtime.ground.hints import Final, TypeVar

__all__ = ["decode_program"]

_SIZED: Final = (Region.ARENA, Region.CONSTANT, Region.STATE, Region.REMOTE)
_ALWAYS_SIZED: Final = 3  # streaming memory is left out where there is none
_WIDE: Final = r"-?[1-9][0-9]{0,39}"
_Number = TypeVar("_Number", bound=IntEnum)
_T = TypeVar("_T")
_SINGLE: Final = frozenset(
    {AttributeKind.INTEGER, AttributeKind.FLOAT, AttributeKind.TEXT, AttributeKind.WIDE}
)


def decode_program(data: bytes, limits: Limits = DEFAULT_LIMITS) -> ProgramImage:
    """The image that `encode_program` made ``data`` from, validated.

    Raises:
        CorruptArchiveError: the data are damaged, or the program could reach beyond its memory.
    """
    fields = unpack(data, "the program", limits)
    memory = fields.integers("memory", high=limits.memory_bytes)
    if not _ALWAYS_SIZED <= len(memory) <= len(_SIZED):
        raise corrupt(f"its program has {len(memory)} memory regions")
    image = _Decoder(fields, limits).image(memory)
    try:
        validate_image(image, limits)
    except ValueError as error:
        raise corrupt(str(error)) from None
    return image


class _Decoder:
    """Reads the columns from the front; the tables first, then what refers to them."""

    def __init__(self, fields: Fields, limits: Limits) -> None:
        self._columns = Columns(fields, PROGRAM_COLUMNS, "the program", LATER_COLUMNS)
        self._has_arguments = self._columns.left("call_arguments") > 0
        self._has_panels = self._columns.left("slot_packing") > 0
        self._depth = limits.depth
        self._strings = _read_strings(
            fields.data("text"), self._columns.rest("string_bytes"), limits
        )
        self._values = [self._value(kind) for kind in self._columns.rest("value_kind")]
        self._sets = [self._set(count) for count in self._columns.rest("set_count")]
        rows = self._columns.rows("op_code", "op_name", "op_attributes", "op_inputs", "op_outputs")
        self._instructions = iter([self._instruction(*row) for row in rows])

    def image(self, memory: tuple[int, ...]) -> ProgramImage:
        """Everything, used up to the last number."""
        rows = self._columns.rows(
            "slot_region", "slot_dtype", "slot_offset", "slot_rank", "slot_strided"
        )
        slots = tuple(self._slot(*row) for row in rows)
        names = self._columns.rest("program_name")
        programs = {
            self._string(name): self._block(self._columns.one("program_items"), self._depth)
            for name in names
        }
        if len(programs) != len(names):
            raise corrupt("two programs have the same name")
        self._columns.finish()
        if next(self._instructions, None) is not None:
            raise corrupt("its program has instructions that no block contains")
        return ProgramImage(slots, programs, *memory)

    # -- tables ----------------------------------------------------------------------------------

    def _string(self, number: int) -> str:
        return _pick(self._strings, number, "string")

    def _value(self, number: int) -> Attribute:
        kind = _member(AttributeKind, number)
        count = self._columns.one("value_count")
        single = kind in _SINGLE
        if single and count != 1:
            raise corrupt(f"an attribute of its program has {count} values instead of 1")
        if kind in {AttributeKind.INTEGER, AttributeKind.INTEGERS}:
            integers = tuple(self._columns.take("value_integer", count))
            return integers[0] if single else integers
        if kind in {AttributeKind.FLOAT, AttributeKind.FLOATS}:
            bits = struct.pack(f"<{count}q", *self._columns.take("value_float", count))
            floats = struct.unpack(f"<{count}d", bits)
            return floats[0] if single else floats
        texts = tuple(self._string(index) for index in self._columns.take("value_text", count))
        if kind in {AttributeKind.WIDE, AttributeKind.WIDES}:
            wides = tuple(_wide(text) for text in texts)
            return wides[0] if single else wides
        return texts[0] if single else texts

    def _set(self, count: int) -> Attributes:
        names = [self._string(number) for number in self._columns.take("set_key", count)]
        values = self._columns.take("set_value", count)
        attributes = {
            name: _pick(self._values, number, "attribute")
            for name, number in zip(names, values, strict=True)
        }
        if len(attributes) != count:
            raise corrupt("an instruction of its program has two attributes of the same name")
        return attributes

    # -- slots and items -------------------------------------------------------------------------

    def _slot(self, region: int, dtype: int, offset: int, rank: int, strided: int) -> Slot:
        if not 0 <= rank <= MAX_RANK:
            raise corrupt(f"a slot of its program has {rank} dimensions")
        where = _member(Region, region)
        packed = self._has_panels and where is Region.CONSTANT
        return Slot(  # by position, which is faster: there are many
            where,
            offset,
            _pick(DTYPES, dtype, "element type"),
            tuple(self._columns.take("slot_dimension", rank)),
            tuple(self._columns.take("slot_stride", rank)) if strided else None,
            self._columns.one("slot_parameter") if where is Region.PARAMETER else -1,
            _member(Packing, self._columns.one("slot_packing")) if packed else Packing.NONE,
        )

    def _instruction(
        self, opcode: int, name: int, attributes: int, inputs: int, outputs: int
    ) -> Instruction:
        return Instruction(
            self._string(opcode),
            tuple(self._columns.take("op_input", inputs)),
            tuple(self._columns.take("op_output", outputs)),
            _pick(self._sets, attributes, "set of attributes"),
            self._string(name),
        )

    def _block(self, count: int, depth: int) -> Block:
        """The next ``count`` items; the contents of a nested block come right behind it."""
        if depth < 0:
            raise corrupt("blocks of its program are nested too deeply")
        if not 0 <= count <= self._columns.left("item_kind"):
            raise corrupt("a block of its program claims more items than the program has")
        return tuple(self._item(depth) for _ in range(count))

    def _item(self, depth: int) -> Item:
        kind = _member(ItemKind, self._columns.one("item_kind"))
        if kind is ItemKind.INSTRUCTION:
            return self._next_instruction()
        if kind is ItemKind.REPEAT:
            return self._repeat(depth - 1)
        if kind is ItemKind.IF:
            return self._if(depth - 1)
        return self._call()

    def _next_instruction(self) -> Instruction:
        instruction = next(self._instructions, None)
        if instruction is None:
            raise corrupt("a block of its program claims more instructions than the program has")
        return instruction

    def _repeat(self, depth: int) -> RepeatBlock:
        columns = self._columns
        return RepeatBlock(
            count=columns.one("repeat_count"),
            count_slot=columns.one("repeat_count_slot"),
            condition_slot=columns.one("repeat_condition_slot"),
            counter_slot=columns.one("repeat_counter_slot"),
            name=self._string(columns.one("repeat_name")),
            body=self._block(columns.one("repeat_items"), depth),
        )

    def _call(self) -> CallBlock:
        columns = self._columns
        program = self._string(columns.one("call_program"))
        if not self._has_arguments:
            return CallBlock(program)
        return CallBlock(
            program,
            tuple(columns.take("call_argument", columns.one("call_arguments"))),
            tuple(map(self._string, columns.take("call_label", columns.one("call_labels")))),
            self._string(columns.one("call_name")),
        )

    def _if(self, depth: int) -> IfBlock:
        columns = self._columns
        name = self._string(columns.one("if_name"))
        condition_slot = columns.one("if_condition_slot")
        # Both sizes precede the items: those of a nested If come in between.
        then_items, else_items = columns.one("if_then_items"), columns.one("if_else_items")
        return IfBlock(
            condition_slot=condition_slot,
            then_body=self._block(then_items, depth),
            else_body=self._block(else_items, depth),
            name=name,
        )


def _read_strings(text: bytes, sizes: list[int], limits: Limits) -> list[str]:
    strings: list[str] = []
    position = 0
    for size in sizes:
        if not 0 <= size <= min(limits.text_bytes, len(text) - position):
            raise corrupt(f"a string of its program has an impossible size: {size:,} bytes")
        try:
            strings.append(text[position : position + size].decode())
        except UnicodeDecodeError:
            raise corrupt("a string of its program is not UTF-8") from None
        position += size
    if position != len(text):
        raise corrupt(
            f"its program has {len(text) - position:,} bytes of text after the last string"
        )
    return strings


def _member(kind: type[_Number], number: int) -> _Number:
    try:
        return kind(number)
    except ValueError:
        raise corrupt(f"its program has an unknown {kind.__name__}: {number}") from None


def _pick(table: Sequence[_T], number: int, what: str) -> _T:
    if not 0 <= number < len(table):
        raise corrupt(f"its program refers to {what} {number}, but has {len(table):,}")
    return table[number]


def _wide(text: str) -> int:
    import re  # few programs have such numbers

    if not re.fullmatch(_WIDE, text):
        raise corrupt(f"an attribute of its program is not an integer: {text!r:.60}")
    return int(text)
