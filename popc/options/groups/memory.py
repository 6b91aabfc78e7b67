"""Options about where results lie."""

from __future__ import annotations

from enum import StrEnum

from popc.options.kinds import Choice, Truth
from popc.options.schema import option
from popc_runtime.ground.frozen import inheritable

__all__ = ["MemoryFormat", "MemoryOptions"]


class MemoryFormat(StrEnum):
    """The layout of images between convolutions in memory."""

    AUTO = "auto"
    CHANNELS_FIRST = "channels_first"
    CHANNELS_LAST = "channels_last"


@inheritable
class MemoryOptions:
    """The places of results."""

    enable_inplace: bool = option(
        Truth(), True, "Let results take over the memory of operands that are not needed any more."
    )
    enable_inplace_ambiguity_checking: bool = option(
        Truth(),
        False,
        "Refuse programs in which it is open which of several ops overwrites an operand. "
        "Data flow or inplace_op_priorities tell. If this is off, the scheduler "
        "decides: the op that runs last does. Results are the same either way.",
        popart="enableInplaceAmbiguityChecking",
    )
    memory_format: MemoryFormat = option(
        Choice(*MemoryFormat),
        MemoryFormat.AUTO,
        "How images between convolutions lie in memory. Pixel by pixel where all ops that make "
        "or read them work with that, or plane by plane: then only those between convolutions "
        "of bytes lie pixel by pixel, under the same conditions. Shapes stay the same, and so "
        "do results but for the order in which a convolution adds up. Native kernels are "
        "faster with pixels, those of numpy with planes. auto is channels_first for training "
        "steps, which gain nothing and whose results then do not depend in the last bit on "
        "options that move ops elsewhere, and channels_last for other programs.",
    )
