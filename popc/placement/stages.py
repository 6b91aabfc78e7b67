"""Stages of a pipeline: inferred from chips, mirrored onto the backward pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from popc.ir import Graph, Op, StepPart

__all__ = ["infer_stages", "last_stage", "mirror_backward"]


def infer_stages(graph: Graph) -> int:
    """Let the number of an op's chip be its stage if no op has one; how many ops got one."""
    if any(op.settings.pipeline_stage is not None for op in graph.ops):
        return 0
    for op in graph.ops:
        op.settings = replace(op.settings, pipeline_stage=op.settings.virtual_graph)
    return len(graph)


def last_stage(ops: Iterable[Op]) -> int:
    """The highest stage of the forward pass; -1 if there is none."""
    stages = (op.settings.pipeline_stage for op in ops if op.settings.part < StepPart.BACKWARD)
    return max((stage for stage in stages if stage is not None), default=-1)


def mirror_backward(graph: Graph) -> None:
    """Move the ops of the backward pass to the stages and phases that they belong to.

    As they are differentiated they have the place of the op that they are the gradient of.  If L is
    the last stage of the forward pass, the gradients of stage s are computed in stage 2 L - s, so
    that those of the last stage are computed in that stage itself; and likewise for phases.
    """
    stage = last_stage(graph.ops)
    phases = [
        op.settings.execution_phase for op in graph.ops if op.settings.part < StepPart.BACKWARD
    ]
    phase = max((phase for phase in phases if phase is not None), default=-1)
    for op in graph.ops:
        if op.settings.part is StepPart.BACKWARD:
            op.settings = replace(
                op.settings,
                pipeline_stage=_mirrored(op.settings.pipeline_stage, stage),
                execution_phase=_mirrored(op.settings.execution_phase, phase),
            )


def _mirrored(number: int | None, last: int) -> int | None:
    return None if number is None else 2 * last - number
