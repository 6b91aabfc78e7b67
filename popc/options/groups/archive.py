"""Options about what is stored in an archive."""

from __future__ import annotations

from enum import StrEnum

from popc.options.kinds import Choice, Truth, Whole
from popc.options.schema import option
from popc_runtime.format import Compression
from popc_runtime.ground.frozen import inheritable

__all__ = ["ArchiveOptions", "WeightStorage"]


class WeightStorage(StrEnum):
    """The form in which weights are stored."""

    COMPRESSED = "compressed"
    MMAP = "mmap"


@inheritable
class ArchiveOptions:
    """The contents of the archive, and their form."""

    compression: Compression = option(
        Choice(*Compression), Compression.DEFAULT, "Effort to spend on a small archive."
    )
    constant_weights: bool = option(
        Truth(),
        True,
        "Make the weights of a program that does not train constants. If not, they can "
        "be read and written between runs, as those of a training program always can, and by "
        "the model itself (CopyVarUpdate, running statistics).",
        popart="constantWeights",
    )
    fold_limit_bytes: int = option(
        Whole(),
        65536,
        "Bytes by which computing a constant at compile time may enlarge the archive. What "
        "would grow more is computed when the archive is loaded, and so are floats of which an "
        "archive can keep the integers that they were quantised to.",
    )
    pack_weights: bool = option(
        Truth(),
        True,
        "Store weights of products and convolutions in the order in which native kernels read "
        "them. They are then used where they lie in the file, instead of being packed each "
        "time it is loaded. Results are the same; a runtime without native kernels unpacks "
        "them.",
    )
    seed: int = option(
        Whole(),
        0,
        "Seed of the random numbers of a program, for those who load the archive without naming "
        "one.",
    )
    weights: WeightStorage = option(
        Choice(*WeightStorage),
        WeightStorage.COMPRESSED,
        "How weights are stored. Compressed makes a small archive; mmap stores them raw and "
        "page-aligned, so that they are mapped instead of read and processes share them. A mapped "
        "file has to stay as it is: replace it rather than write into it, or load it with "
        "copy_weights=True.",
    )
