"""The form of a local rule, and the questions that rules ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from popc.ir import Graph, Op, Tensor
from popc.transforms.match import sole_output
from popc_runtime.ground.frozen import frozen

__all__ = ["LocalRule", "Rewrite", "sole_nearby"]

# What may take the place of output 0 of an op, of the same type; None if the rule does not fit.
Rewrite: TypeAlias = Callable[[Graph, Op], "Tensor | None"]


@frozen
class LocalRule:
    """A rewrite that can be switched on and off by its name.

    Attributes:
        name: What options and annotations call it.
        level: The lowest level of patterns at which it is on: "minimal", "default" or "all".
        does: What it does, for the documentation.
        results: "equal" if they are the same bit for bit, else what may differ.
        rewrites: By the type of op that they are tried on.
        late: It only fits when nothing looks for the ops that it replaces any more.
        after_gradients: It would change gradients, so it waits for the backward pass, if there is
            going to be one.
    """

    name: str
    level: str
    does: str
    rewrites: Mapping[str, Rewrite]
    results: str = "equal"
    late: bool = False
    after_gradients: bool = False


def sole_nearby(graph: Graph, op: Op, tensor: Tensor | None, *op_types: str) -> Op | None:
    """`sole_output`, if moreover the op runs where ``op`` runs."""
    found = sole_output(graph, tensor, *op_types)
    return found if found is not None and found.settings.place == op.settings.place else None
