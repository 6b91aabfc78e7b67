"""The executable program: slots, instructions and the blocks that order them.

An archive holds one `ProgramImage`: the slots (typed views into memory
regions) and the named programs.  It is plain data; `popc_runtime.device` turns it into calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.frozen import field, frozen
from popc_runtime.ground.hints import Final, TypeAlias

__all__ = [
    "EVALUATION_PROGRAM",
    "LOAD_PROGRAM",
    "MAIN_PROGRAM",
    "Attribute",
    "Attributes",
    "Block",
    "CallBlock",
    "IfBlock",
    "Instruction",
    "Item",
    "Packing",
    "ProgramImage",
    "Region",
    "RepeatBlock",
    "Slot",
]

Attribute: TypeAlias = "int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]"
Attributes: TypeAlias = Mapping[str, Attribute]
Block: TypeAlias = "tuple[Item, ...]"

LOAD_PROGRAM: Final = "weights_from_host"
MAIN_PROGRAM: Final = "main"
EVALUATION_PROGRAM: Final = "evaluation"  # beside one that trains


class Region(IntEnum):
    """The memory region that a slot lies in."""

    ARENA = 0  # scratch of one run: activations
    CONSTANT = 1  # the weights blob of the archive: read-only
    STATE = 2  # lives from load to unload: values computed at load time, variables
    PARAMETER = 3  # memory that the call of a program hands over
    REMOTE = 4  # streaming memory: lives from load to unload


class Packing(IntEnum):
    """In which order the elements of a constant are stored; `panels` describes them."""

    NONE = 0  # that of indices, or what strides say
    COLUMNS = 1  # panels of columns of a matrix [K, N]
    ROWS = 2  # panels of rows of a tensor [N, K, *taps]


@frozen
class Slot:
    """A typed, possibly strided view into a region.

    ``offset`` is in bytes.  ``strides`` are in bytes too; ``None`` means C-contiguous.  What lies
    in a parameter is counted from the first byte of what the caller hands over as parameter number
    ``parameter``; elsewhere that is -1.  ``packing`` is for constants without strides.
    """

    region: Region
    offset: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    parameter: int = -1
    packing: Packing = Packing.NONE


@frozen
class Instruction:
    """One operation on slots.  An absent optional operand has slot number -1."""

    opcode: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Attributes = field(default_factory=dict[str, Attribute])
    name: str = ""  # the ONNX node (or pass) it comes from, for profiles and errors


@frozen
class RepeatBlock:
    """Run ``body`` until ``count`` iterations are done or the condition is false.

    ``count`` is the static number of iterations (-1: none), ``count_slot`` an int64 scalar that
    gives it at run time, where less than zero is zero (-1: none; both -1: unbounded).
    ``condition_slot`` is a bool scalar that is read before each iteration (-1: always true).
    ``counter_slot`` is an int64 scalar that receives the iteration number before each iteration
    (-1: not wanted).
    """

    body: Block
    count: int = -1
    count_slot: int = -1
    condition_slot: int = -1
    counter_slot: int = -1
    name: str = ""


@frozen
class IfBlock:
    """Run ``then_body`` if the bool scalar in ``condition_slot`` is true, else ``else_body``."""

    condition_slot: int
    then_body: Block
    else_body: Block
    name: str = ""


@frozen
class CallBlock:
    """Run another program of the image.

    ``arguments`` are slots, one per parameter of the program (-1: none): contiguous memory that its
    slots in this parameter show parts of.  ``labels`` take the place of {0}, {1}, ... in the names
    of its instructions.
    """

    program: str
    arguments: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    name: str = ""


Item: TypeAlias = "Instruction | RepeatBlock | IfBlock | CallBlock"


@frozen
class ProgramImage:
    """Everything that runs: slots, programs by name, and the bytes that each region needs."""

    slots: tuple[Slot, ...]
    programs: Mapping[str, Block]
    arena_bytes: int
    constant_bytes: int
    state_bytes: int
    remote_bytes: int = 0
