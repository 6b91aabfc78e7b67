"""The columns of an encoded program, shared by its writer and its reader.

A program is stored by columns, not by instructions: one array of all opcodes, one of all numbers
of operands, one of all operands, ...  That packs and unpacks at the speed of arrays and compresses
to a fraction.  Strings and attributes are stored once, in tables, and referred to by number.
"""

from __future__ import annotations

from enum import IntEnum

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final

__all__ = ["DTYPES", "LATER_COLUMNS", "PROGRAM_COLUMNS", "AttributeKind", "ItemKind"]

# Element types by number; a new one goes to the end.
DTYPES: Final = tuple(DType)

PROGRAM_COLUMNS: Final = (
    "string_bytes",  # length of each string; the strings themselves are the field "text"
    # one entry per attribute value; integers, bit patterns of float64 and strings follow in the
    # order of the values
    *("value_kind", "value_count", "value_integer", "value_float", "value_text"),
    # one entry per set of attributes, then one per attribute of each set
    *("set_count", "set_key", "set_value"),
    # one entry per slot; dimensions and strides follow in the order of the slots
    *("slot_region", "slot_dtype", "slot_offset", "slot_rank", "slot_strided"),
    *("slot_dimension", "slot_stride"),
    # one entry per instruction
    *("op_code", "op_name", "op_attributes", "op_inputs", "op_outputs", "op_input", "op_output"),
    # the items of all programs, each block's items right behind the item that owns it
    "item_kind",
    *("repeat_items", "repeat_count", "repeat_count_slot", "repeat_condition_slot"),
    *("repeat_counter_slot", "repeat_name"),
    *("if_condition_slot", "if_then_items", "if_else_items", "if_name"),
    "call_program",
    *("program_name", "program_items"),
)

# Columns that later minor versions of the format have added: left out where they are empty, so that
# programs without what they are for are still read by older readers.
LATER_COLUMNS: Final = (
    # one entry per slot in a parameter
    "slot_parameter",
    # one entry per argument of each call, by the number of slots and of labels of each; either all
    # calls have entries, or none
    *("call_arguments", "call_argument", "call_labels", "call_label", "call_name"),
    # one entry per slot in the constant region; either all of them have one, or none
    "slot_packing",
)


class AttributeKind(IntEnum):
    """Type of an attribute value."""

    INTEGER = 0
    FLOAT = 1
    TEXT = 2
    INTEGERS = 3
    FLOATS = 4
    TEXTS = 5
    WIDE = 6  # an integer beyond int64, as decimal text
    WIDES = 7


class ItemKind(IntEnum):
    """The kind of an item of a block."""

    INSTRUCTION = 0
    REPEAT = 1
    IF = 2
    CALL = 3
