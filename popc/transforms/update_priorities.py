"""The times of updates of weights, and of sums of gradients, where the order of ops is free."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import ClassVar, Final, Self

from popc.ir import Graph, Op, StepPart
from popc.transforms.base import Pass
from popc.transforms.context import PassContext
from popc_runtime.ground.frozen import frozen

__all__ = ["UpdatePriorities"]

_LAST: Final = -sys.float_info.max
_FIRST: Final = sys.float_info.max


@frozen
class UpdatePriorities(Pass):
    """Ops that update weights get the lowest priority; those that add gradients up the highest.

    Ops that the user gives a priority keep it.  ``delay``: new weights are computed when nothing
    else is left to do.  ``early``: a gradient is added to those of earlier micro-batches as soon
    as it is known.
    """

    name: ClassVar[str] = "update_priorities"
    optional: ClassVar[bool] = False
    delay: bool = False
    early: bool = False

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        options = context.options
        early = options.schedule_non_weight_update_gradient_consumers_early
        return cls(options.delay_var_updates, early)

    def run(self, graph: Graph) -> int:
        """Set priorities in the top graph; how many."""
        if not (self.delay or self.early):
            return 0
        adding = _leading_to_sums(graph)
        changes = 0
        for op in graph.ops:
            priority = 0.0
            if self.early and op.op_type == "Accumulate":
                priority = _FIRST
            elif self.delay and op.settings.part is StepPart.UPDATE and op not in adding:
                priority = _LAST
            if priority and op.settings.schedule_priority == 0:
                op.settings = replace(op.settings, schedule_priority=priority)
                changes += 1
        return changes


def _leading_to_sums(graph: Graph) -> set[Op]:
    """The ops that add gradients up, and all that these need."""
    found: set[Op] = set()
    for op in reversed(graph.topological()):
        if op.op_type == "Accumulate" or any(
            user in found for tensor in op.outputs for user in tensor.uses
        ):
            found.add(op)
    return found
