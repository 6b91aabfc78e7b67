"""Cut the batch into parts that go through the network one after another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import ClassVar, Final, Self

from popc.ir import Graph, Op, StepPart, Tensor
from popc.options import Options, PartsContext, PartsMethod
from popc.transforms.base import Pass, PassOutcome
from popc.transforms.context import PassContext
from popc_runtime.ground.frozen import frozen

__all__ = ["BatchSerialization"]

_MOST_NAMES: Final = 4  # nodes that an error names; of the rest the number is told


@frozen
class BatchSerialization(Pass):
    """Ops that treat samples independently are computed for one part of the batch after another.

    Ops that mix samples stay whole: the parts of their operands are put together first.  `unroll`
    and `make_loops` show what the graph looks like before and after.  Results are the same bit for
    bit where nothing is summed over the batch; elsewhere (losses, gradients of weights) parts are
    summed first, and then their sums.

    Attributes:
        options: How many parts, and how they are computed.
        barriers: Tensors that are put together although only parts of them are read.
    """

    name: ClassVar[str] = "batch_serialization"
    excludable: ClassVar[bool] = True
    options: Options
    barriers: Collection[Tensor] = ()

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options, context.barriers)

    def run(self, graph: Graph) -> int | PassOutcome:
        """Cut what can be cut; how many ops."""
        options = self.options
        if not self._acts_on(graph):
            return 0
        # Few programs need these.
        from popc.transforms.batch_serialization.analysis import Crossing, analyse
        from popc.transforms.batch_serialization.batch import find_batch
        from popc.transforms.batch_serialization.groups import find_groups
        from popc.transforms.batch_serialization.loop import make_loops
        from popc.transforms.batch_serialization.unroll import unroll

        parts = options.batch_serialization_factor
        analysis = analyse(
            graph,
            find_batch(graph, options),
            parts,
            Crossing.of(options),
            barriers=self.barriers,
            excluded=[op for op in graph.ops if self.name in op.settings.exclude_patterns],
        )
        regions = find_groups(graph, analysis)
        method = options.method_for_parts
        if method is PartsMethod.LOOP:
            make_loops(graph, analysis, regions)
        else:
            unroll(graph, analysis, regions, dynamic=method is PartsMethod.UNROLL_DYNAMIC)
        effects = {"cut": len(analysis.cuts), "whole": len(analysis.whole), "regions": len(regions)}
        note = _note(len(analysis.cuts), parts, analysis.whole)
        return PassOutcome(len(analysis.cuts), effects, (note,) if note else ())

    def problems(self, graph: Graph) -> list[str]:
        """Parts that mix, looked for naively."""
        if not self._acts_on(graph):
            return []
        from popc.transforms.batch_serialization.check import find_mixed_parts

        return find_mixed_parts(graph, self.options.batch_serialization_factor)

    def _acts_on(self, graph: Graph) -> bool:
        """True if there is something to do: with FWD it has been done before the gradients."""
        is_late = self.options.batch_serialization_transform_context is PartsContext.BWD
        return self.options.cuts_batch and (is_late or not _trains(graph))


def _trains(graph: Graph) -> bool:
    return any(op.settings.part is StepPart.BACKWARD for op in graph.ops)


def _note(cut: int, parts: int, whole: Mapping[Op, str]) -> str:
    """A note for the user on ops with a batch that stay whole; "" if there are none."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for op, reason in whole.items():
        if op.outputs:
            reasons[f"{op.op_type}, {reason}"].append(op.settings.origin or op.output.name)
    if not reasons:
        return ""
    listed = "; ".join(f"{_named(names)} ({reason})" for reason, names in reasons.items())
    return f"batch_serialization_factor: {cut} ops are cut into {parts} parts, but not {listed}"


def _named(names: list[str]) -> str:
    shown = ", ".join(dict.fromkeys(names[:_MOST_NAMES]))
    more = len(names) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
