"""Options about the target: which one, how much of it, and how its memory is used."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from popc.options.schema import described
from popc.options.table import FrozenTable

__all__ = ["TargetOptions"]

_NO_PROPORTIONS: Final[FrozenTable[float]] = FrozenTable()


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """What `popc estimate` needs to know beside the model.

    Of these, only ``partials_type`` changes results.
    """

    allow_out_of_memory: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Write the archive of a program that does not fit its target all the same. It runs "
            "as any other, and holds the cost report. Without a choice of target, or of how much "
            "of it is used, nothing is refused.",
        ),
    )
    available_memory_proportion: float = field(
        default=0.6,
        metadata=described(
            "float",
            "How much of a tile's memory the temporary data of one op may take. That is of "
            "convolutions, matrix products and gathers: less makes programs fit, more makes them "
            "faster. With 0, plans use as little as they can.",
            high=1,
            popart="availableMemoryProportion",
        ),
    )
    available_memory_proportions: FrozenTable[float] = field(
        default=_NO_PROPORTIONS,
        metadata=described(
            "floats",
            "available_memory_proportion for single nodes. A table from names or patterns of nodes "
            "to proportions; the first pattern that fits, in alphabetical order, counts. In TOML: "
            '[available_memory_proportions] "layer*.up" = 0.2.',
            high=1,
        ),
    )
    cost_report: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Put what `popc estimate` would say into the archive. That is cycles and bytes of "
            "every op and tile, as JSON.",
        ),
    )
    ipu_selection_order: str = field(
        default="auto",
        metadata=described(
            "choice",
            "In which order a program counts IPUs. Along the ladder of their links: rung by rung "
            "(zigzag), so that neighbours are linked (snake), or up one side and down the other "
            "(hoof).",
            choices=("auto", "zigzag", "snake", "hoof"),
        ),
    )
    num_io_tiles: int = field(
        default=0,
        metadata=described(
            "int",
            "How many tiles of each IPU only transfer data; the others compute. An even number, 32 "
            "or more, or 0. What they transfer is said by tile_sets and exchange_strategies.",
            high=(1 << 20) - 2,
            popart="numIOTiles",
        ),
    )
    num_ipus: int = field(
        default=1,
        metadata=described(
            "int", "How many IPUs the system has: a power of two, up to 64.", low=1, high=64
        ),
    )
    partials_type: str = field(
        default="float",
        metadata=described(
            "choice",
            "In which type convolutions of float16 add up. As partials_type_matmuls, for Conv, "
            "ConvTranspose and the gradients of their weights.",
            choices=("float", "half"),
            popart="convolutionOptions.partialsType",
        ),
    )
    target: str = field(
        default="ipu2",
        metadata=described(
            "text",
            "The IPU that costs are computed for. One that `popc targets` lists, or a TOML file "
            "that describes another one.",
        ),
    )
    tiles_per_ipu: int = field(
        default=0,
        metadata=described(
            "int", "How many tiles of each IPU to use; 0 for all of them.", high=1 << 20
        ),
    )
