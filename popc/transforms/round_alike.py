"""Stochastic rounding that keeps equal what is equal on all replicas."""

from __future__ import annotations

from typing import ClassVar, Self

from popc.ir import Graph
from popc.transforms.base import Pass
from popc.transforms.context import PassContext
from popc_runtime.ground.frozen import frozen

__all__ = ["RoundAlike"]


@frozen
class RoundAlike(Pass):
    """Ops whose exact results are equal on all replicas draw the same random bits there.

    Before::

        %w: float16[4] = SGD0VarUpdate($w, %g) rounding='stochastic'

    After::

        %w: float16[4] = SGD0VarUpdate($w, %g) alike=1 rounding='stochastic'
    """

    name: ClassVar[str] = "round_alike"
    optional: ClassVar[bool] = False
    replicas: int  # 1: nobody else draws bits

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options.replicated_graph_count)

    def run(self, graph: Graph) -> int:
        """Set the attribute; the number of ops that have got it."""
        if self.replicas == 1:
            return 0
        random = [
            op
            for nested in graph.walk()
            for op in nested.ops
            if op.attributes.get("rounding") == "stochastic"
        ]
        if not random:
            return 0
        from popc.ops.divergence import find_divergence

        divergence = find_divergence(graph, self.replicas)
        inside = {
            op
            for outer in divergence.ops
            for branch in outer.subgraphs.values()
            for nested in branch.walk()
            for op in nested.ops
        }
        marked = [
            op for op in random if op not in inside and divergence.tensors.isdisjoint(op.outputs)
        ]
        for op in marked:
            op.attributes["alike"] = 1
        return len(marked)
