"""Options about how much work compiling a model may be."""

from __future__ import annotations

from popc.options.kinds import Table, Whole
from popc.options.schema import option
from popc.options.table import FrozenTable
from popc_runtime.ground.frozen import inheritable

__all__ = ["EffortOptions"]


@inheritable
class EffortOptions:
    """Limits that end a compilation which a small model could otherwise make endless."""

    bounds: FrozenTable[int] = option(
        Table(
            Whole(low=0), "from names of tensors to the most of their size", example="boxes=1000"
        ),
        FrozenTable(),
        "The most of each size that data decides, by the name of the tensor that has it. "
        "The tensor is the result of NonZero, NonMaxSuppression and their kin; a pattern "
        "(durations_*) stands for several. Memory is planned for that size, and a run that needs "
        "more ends with an error. Without, the most follows from the shapes of operands where "
        "they tell it. On the command line also --bound NAME=N; see docs/sizes.md.",
    )
    max_computed_bytes: int = option(
        Whole(low=1),
        4 << 30,
        "Bytes of values that may be computed while a model is imported, because they follow from "
        "constants. A model that asks for more is refused, with the name of the node.",
    )
    max_imported_nodes: int = option(
        Whole(low=1),
        200_000,
        "Nodes that a model may have when its functions are expanded and its loops unrolled. "
        "A model with more is refused, with the name of the node.",
    )
