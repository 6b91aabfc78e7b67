"""The facts that a pass may know beside the graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from popc.ir import Graph, Op, Tensor
from popc.options import Options
from popc_runtime.ground.frozen import frozen

__all__ = ["Orders", "PassContext", "insertion_orders"]

# The order in which the ops of a graph, and of all graphs nested in it, are going to run.
Orders: TypeAlias = Callable[[Graph], Mapping[Graph, Sequence[Op]]]


def insertion_orders(graph: Graph) -> Mapping[Graph, Sequence[Op]]:
    """Any order that there is."""
    return {nested: nested.topological() for nested in graph.walk()}


@frozen
class PassContext:
    """The arguments from which `Pass.of` makes a pass.

    Attributes:
        options: What the user wants.
        orders: Tells in which order ops are going to run.
        before_gradients: Whether a backward pass is still to come.
        barriers: Tensors whose gradients are going to be asked for, so that they must stay.
    """

    options: Options
    orders: Orders = insertion_orders
    before_gradients: bool = False
    barriers: Collection[Tensor] = ()
