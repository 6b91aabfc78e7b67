"""The pass that outlines, without what it needs for that."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from popc.ir import Graph
from popc.transforms.base import Pass, PassOutcome
from popc.transforms.context import Orders, PassContext, insertion_orders
from popc.transforms.eight_bits import parts_of_products
from popc.transforms.outlining.terms import Terms, has_calls
from popc_runtime.ground.frozen import frozen

__all__ = ["Outlining"]


@frozen
class Outlining(Pass):
    """Ops that follow each other in the same way several times become a graph that is called.

    Before::

        %a = MatMul(%x, @u) ; %b = Gelu(%a) ; %c = MatMul(%b, @v) ; %d = Gelu(%c)

    After::

        %b = Call(%x, @u) callee = graph part_1 (%x, %w) { %a = MatMul(%x, %w)
                                                           %b = Gelu(%a) ; return %b }
        %d = Call(%b, @v) callee = graph part_1

    Attributes:
        enabled: Whether to look everywhere, or only at what the model calls.
        terms: What a part must be worth.
        orders: Tells in which order ops are going to run.
        target: Where that multiplies floats of eight bits, a part that reads some takes them as
            they are stored.
    """

    name: ClassVar[str] = "outlining"
    optional: ClassVar[bool] = False
    enabled: bool = True
    terms: Terms = field(default_factory=Terms)
    orders: Orders = insertion_orders
    target: str = ""

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        options = context.options
        terms = Terms(
            options.outline_threshold,
            options.outline_sequence_break_cost,
            options.enable_outlining_copy_cost_pruning,
        )
        return cls(options.enable_outlining, terms, context.orders, options.target)

    def run(self, graph: Graph) -> PassOutcome:
        """Outline until nothing is worth it any more; the number of calls."""
        if not self.enabled and not has_calls(graph):
            return PassOutcome(0)
        from popc.transforms.outlining.outline import outline_parts  # few programs need it

        shown = parts_of_products(graph, self.target)
        terms = self.terms if self.enabled else None
        return outline_parts(graph, self.orders(graph), terms, shown)

    def problems(self, graph: Graph) -> list[str]:
        """Calls that are not right."""
        from popc.transforms.outlining.check import find_broken_calls

        return find_broken_calls(graph)
