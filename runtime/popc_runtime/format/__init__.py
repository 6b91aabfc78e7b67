"""The archive format: element types, programs and the container file."""

from popc_runtime.format.dtypes import Array, DType
from popc_runtime.format.program import (
    Attribute,
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
)

__all__ = [
    "Array",
    "Attribute",
    "Attributes",
    "Block",
    "CallBlock",
    "DType",
    "IfBlock",
    "Instruction",
    "Item",
    "ProgramImage",
    "Region",
    "RepeatBlock",
    "Slot",
]
