"""The terms on which parts become graphs, and whether any have to."""

from __future__ import annotations

from popc.ir import Graph
from popc_runtime.ground.frozen import frozen

__all__ = ["Terms", "has_calls"]


@frozen
class Terms:
    """The least worth of a part.

    Attributes:
        threshold: The least value of a part, without that of what is outlined already.
        break_cost: What it costs to part an exchange from what may overlap with it.
        prune: Whether the copies of operands and results must be worth it.
    """

    threshold: float = 1.0
    break_cost: float = 10_000.0
    prune: bool = True


def has_calls(graph: Graph) -> bool:
    """True if ops belong to calls of the model."""
    return any(op.settings.call for nested in graph.walk() for op in nested.ops)
