"""Options about the target: which one, how much of it, and how its memory is used."""

from __future__ import annotations

from popc.options.kinds import Choice, Number, Several, Table, Text, Whole
from popc.options.schema import option
from popc.options.table import FrozenTable
from popc.target.topology import SelectionOrder
from popc_runtime.ground.frozen import inheritable

__all__ = ["TargetOptions"]


@inheritable
class TargetOptions:
    """On what the program runs.  Costs depend on these, results do not."""

    available_memory_proportion: float = option(
        Number(high=1),
        0.6,
        "How much of a tile's memory the temporary data of one op may take. That is of "
        "convolutions, matrix products and gathers: less makes programs fit, more makes them "
        "faster. With 0, plans use as little as they can.",
        popart="availableMemoryProportion",
    )
    available_memory_proportions: FrozenTable[float] = option(
        Table(Number(high=1), "from names to numbers", example="a=0.3,b=0.5"),
        FrozenTable(),
        "available_memory_proportion for single nodes. A table from names or patterns of nodes "
        "to proportions; the first pattern that fits, in alphabetical order, counts. In TOML: "
        '[available_memory_proportions] "layer*.up" = 0.2.',
    )
    available_memory_by_op_type: FrozenTable[float] = option(
        Table(Number(high=1), "from types of ops to numbers", example="MatMul=0.3,Conv=0.5"),
        FrozenTable(),
        "available_memory_proportion for all ops of a type. available_memory_proportions, by name, "
        "comes first. In TOML: [available_memory_by_op_type] MatMul = 0.2.",
    )
    available_memory_per_ipu: tuple[float, ...] = option(
        Several(Number(high=1)),
        (),
        "available_memory_proportion for each IPU. One number for each of num_ipus; "
        "available_memory_proportions and available_memory_by_op_type come first.",
    )
    ipu_selection_order: SelectionOrder = option(
        Choice(*SelectionOrder),
        SelectionOrder.AUTO,
        "Order in which a program counts IPUs. Along the ladder of their links: rung by rung "
        "(zigzag), so that neighbours are linked (snake), or up one side and down the other "
        "(hoof).",
    )
    io_tile_memory_proportion: float = option(
        Number(high=1),
        0.0,
        "Proportion of the memory of io tiles that may hold data. What would take more on an IPU "
        "is transferred by the tiles that compute, all of it, and does not overlap; a note says "
        "so. 0 stands for no bound. Needs num_io_tiles.",
    )
    num_io_tiles: int = option(
        Whole(high=(1 << 20) - 2),
        0,
        "Tiles of each IPU that only transfer data; the others compute. An even number, 32 "
        "or more, or 0. tile_sets and exchange_strategies say what they transfer.",
        popart="numIOTiles",
    )
    num_ipus: int = option(
        Whole(low=1, high=64), 1, "Number of IPUs in the system: a power of two, up to 64."
    )
    target: str = option(
        Text(),
        "ipu2",
        "The IPU that costs are computed for. One that `popc targets` lists, or a TOML file "
        "that describes another one.",
    )
    tiles_per_ipu: int = option(
        Whole(high=1 << 20), 0, "Number of tiles of each IPU to use; 0 for all of them."
    )
