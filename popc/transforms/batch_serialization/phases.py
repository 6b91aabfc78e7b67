"""Find the part of a batch to which ops belong that were added without knowing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

from popc.ir import Graph, Op
from popc.transforms.base import Pass
from popc_runtime.ground.frozen import frozen

__all__ = ["FillPhases"]

_MIXED: Final = -1  # in place of a phase: more than one


@frozen
class FillPhases(Pass):
    """Ops between ops of one part of a batch that read no other part belong to that part.

    Differentiation adds such ops: sums of the gradients of one tensor.

    Before::

        %a = ReluGrad(...)           batch_phase 1
        %s = Sum(%a, %b)
        %c = MatMul(%s, %w)          batch_phase 1

    After::

        %s = Sum(%a, %b)             batch_phase 1

    What reads no part but is read by several (merged, because it is the same) belongs to none.
    """

    name: ClassVar[str] = "fill_phases"
    optional: ClassVar[bool] = False

    def run(self, graph: Graph) -> int:
        """Give ops their phases; how many."""
        return sum(_fill(nested) for nested in graph.walk())


def _fill(graph: Graph) -> int:
    if all(op.settings.batch_phase is None for op in graph.ops):
        return 0
    order = graph.topological()
    count = _share(order)
    read: dict[Op, int | None] = {}  # the only part that an op reads, or belongs to
    for op in order:
        producers = [
            operand.producer for operand in op.present_inputs if operand.producer is not None
        ]
        found = {read[producer] for producer in producers if read[producer] is not None}
        own = op.settings.batch_phase
        only = next(iter(found), None) if len(found) < 2 else _MIXED
        read[op] = only if own is None else own
    for op in reversed(order):
        phase = read[op]
        if op.settings.batch_phase is not None or phase in (None, _MIXED):
            continue
        users = [user for tensor in op.outputs for user in tensor.uses]
        if any(user.settings.batch_phase == phase for user in users):
            op.settings = replace(op.settings, batch_phase=phase)
            count += 1
    return count


def _share(order: Sequence[Op]) -> int:
    """Take the phases from ops that several parts share; how many."""
    count = 0
    for op in order:
        phase = op.settings.batch_phase
        producers = [
            operand.producer for operand in op.present_inputs if operand.producer is not None
        ]
        users = (user.settings.batch_phase for tensor in op.outputs for user in tensor.uses)
        if phase is None or all(user in (None, phase) for user in users):
            continue
        if all(producer.settings.batch_phase is None for producer in producers):
            op.settings = replace(op.settings, batch_phase=None)
            count += 1
    return count
