"""Random numbers of ops that may run in several orders."""

from __future__ import annotations

from popc.ir import Graph, Op
from popc.ops import OPS

__all__ = ["number_sequences"]

_ATTRIBUTE = "sequence"


def number_sequences(graph: Graph) -> int:
    """Let every op that draws random numbers draw from a sequence of its own; how many have none.

    Then it does not matter for results on which chips ops are, and in which order stages run.
    """
    ops = [op for nested in graph.walk() for op in nested.topological() if _draws(op)]
    numbers = (op.attributes.get(_ATTRIBUTE) for op in ops)
    following = max((int(str(count)) for count in numbers if count is not None), default=-1) + 1
    new = [op for op in ops if _ATTRIBUTE not in op.attributes]
    for number, op in enumerate(new, start=following):
        op.attributes = {**op.attributes, _ATTRIBUTE: number}
    return len(new)


def _draws(op: Op) -> bool:
    spec = OPS.get(op.op_type)
    return spec is not None and spec.random and op.op_type != "Accumulate"
