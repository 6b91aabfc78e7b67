"""Options about how much work compiling a model may be."""

from __future__ import annotations

from dataclasses import dataclass

from popc.options.kinds import Whole
from popc.options.schema import option

__all__ = ["EffortOptions"]


@dataclass(frozen=True)
class EffortOptions:
    """Limits that end a compilation which a small model could otherwise make endless."""

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
