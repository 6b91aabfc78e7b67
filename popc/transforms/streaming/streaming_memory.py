"""Keep tensors in streaming memory, or parts of them on each replica, and fetch what is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from popc.ir import Graph
from popc.options import Options
from popc.transforms.base import Pass, PassOutcome
from popc.transforms.context import Orders, PassContext, insertion_orders
from popc.transforms.streaming.phases import (
    PhaseRules,
    forget_outer_phases,
    phased_graphs,
    settle_phases,
)
from popc_runtime.ground.frozen import frozen

__all__ = ["StreamingMemory"]


@frozen
class StreamingMemory(Pass):
    """Weights, state of the optimizer, sums of gradients and activations go where they are kept.

    Before::

        %h = MatMul(%x, $w1)
        ...
        %g1 = MatMul(%xT, %d)                     backward, with xT = Transpose(%x)
        %new = Sub($w1, %g1)
        CopyVarUpdate($w1, %new)

    After, with weights and activations off chip::

        %x_stored = RemoteStore(%x)
        %w1_loaded = RemoteLoad($w1)
        %h = MatMul(%x, %w1_loaded)
        ...
        %x_loaded = RemoteLoad(%x_stored)
        %w1_again = RemoteLoad($w1)
        %g1 = MatMul(%xT, %d)                     with xT = Transpose(%x_loaded)
        %new = Sub(%w1_again, %g1)
        %kept = RemoteStore(%new)
        CopyVarUpdate($w1, %kept)

    What is fetched serves all ops of one context: of the forward pass, or of the backward pass, at
    one place; with execution phases, of phases that are near to each other.  It waits for what the
    first of them has to wait for anyway.  Of a weight that replicas divide among them, the parts
    are gathered once for each context, and the update gives this replica's part its next value.
    Results stay the same.

    Attributes:
        options: What is kept where.
        orders: Tells in which order ops would run if everything were kept on the chip.
    """

    name: ClassVar[str] = "streaming_memory"
    optional: ClassVar[bool] = False
    options: Options
    orders: Orders = insertion_orders

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options, context.orders)

    def run(self, graph: Graph) -> PassOutcome:
        """Insert transfers; how many, and what they move."""
        from popc.transforms.streaming.storage import StorageMap

        storage, rules = StorageMap(graph, self.options), PhaseRules(self.options)
        changes = forget_outer_phases(graph)
        phased = phased_graphs(graph)
        for phase in phased:
            settle_phases(phase, graph)
            rules.finish(phase, graph)
        effects: dict[str, int] = {}
        if storage.needed:
            orders = self.orders(graph)
            changes += storage.settle()
            from popc.transforms.streaming.transfers import Transfers

            transfers = Transfers(storage, orders, rules)
            transfers.visit(graph)
            effects = transfers.effects
        changes += sum(rules.finish(part, graph) for part in phased) + sum(effects.values())
        return PassOutcome(changes, effects)

    def problems(self, graph: Graph) -> Sequence[str]:
        """Ops that read what they would have to fetch first."""
        from popc.transforms.streaming.check import find_misplaced

        return find_misplaced(graph)
