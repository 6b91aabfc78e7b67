"""Let every stage of a pipeline add up its own part of a gradient."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Self

from popc.ir import Graph, Op, StepPart, Tensor
from popc.ops.build import build
from popc.transforms.base import Pass
from popc.transforms.context import PassContext
from popc_runtime.ground.frozen import frozen

__all__ = ["SumsOfStages"]

_PASSING = ("Boundary", "IpuCopy")  # what stands where the place changes


@frozen
class SumsOfStages(Pass):
    """A gradient that several stages contribute to is added up by each of them.

    So are those of a weight that several stages read.  Without this pass, the part of the stage
    that comes first would wait for the others, once for each micro-batch on its way.

    Before::

        %g = Add(%a, %b)                  a of pipeline_stage 4, b of 8
        %sum = Accumulate(%g)

    After::

        %sum_a = Accumulate(%a)           pipeline_stage 4
        %sum_b = Accumulate(%b)           pipeline_stage 8
        %sum = Add(%sum_a, %sum_b)

    Sums whose values the host gets stay as they are.

    Attributes:
        enabled: Whether to do anything: in pipelines.
    """

    name: ClassVar[str] = "sums_of_stages"
    optional: ClassVar[bool] = False
    enabled: bool = True

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options.enable_pipelining)

    def run(self, graph: Graph) -> int:
        """Divide sums; how many."""
        if not self.enabled:
            return 0
        return sum(_divide(graph, op) for op in graph.topological() if op.op_type == "Accumulate")


def _divide(graph: Graph, op: Op) -> bool:
    """Replace an Accumulate if it is of what several stages give."""
    groups = _addends_by_stage(op)
    if len(groups) < 2 or any(user.op_type == "HostStore" for user in op.output.uses):
        return False
    last = max(groups)
    sums = [_sum(graph, op, groups[stage], starts=stage == last) for stage in groups]
    settings = replace(op.settings, part=StepPart.UPDATE, pipeline_stage=None)
    name = op.output.name
    total = build(graph, "Sum", sums, settings=settings).output
    graph.replace_op(op, [total])
    graph.rename(total, name)
    return True


def _sum(graph: Graph, op: Op, addends: list[Tensor], *, starts: bool) -> Tensor:
    """The sum of a stage's addends over micro-batches; ``starts``: it begins as that of ``op``."""
    maker = addends[0].producer
    assert maker is not None
    there = maker.settings
    place = replace(
        op.settings, virtual_graph=there.virtual_graph, pipeline_stage=there.pipeline_stage
    )
    total = addends[0]
    if len(addends) > 1:
        total = build(graph, "Sum", addends, settings=place).output
    operands = [total, *op.inputs[1:]] if starts else [total]
    return build(graph, "Accumulate", operands, dict(op.attributes), settings=place).output


def _addends_by_stage(op: Op) -> dict[int, list[Tensor]]:
    """The addends of which an Accumulate's is the sum, by the stages that compute them.

    None, if a stage is not known.
    """
    groups: dict[int, list[Tensor]] = {}
    for addend in _addends(op.operand(0)):
        stage = addend.producer.settings.pipeline_stage if addend.producer else None
        if stage is None:
            return {}
        groups.setdefault(stage, []).append(addend)
    return dict(sorted(groups.items()))


def _addends(total: Tensor) -> Iterator[Tensor]:
    """The tensors of which ``total``, if nobody else reads it, is the sum, where they are made."""
    op = total.producer
    if op is None or len(total.uses) != 1:
        yield total
    elif op.op_type in _PASSING:
        yield from _addends(op.operand(0))
    elif op.op_type in ("Add", "Sum") and all(t.type == total.type for t in op.present_inputs):
        for tensor in op.present_inputs:
            yield from _addends(tensor)
    else:
        yield total
