"""The places where variables are written that a model itself updates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from popc.ir import Graph, Op, StepPart
from popc.placement.chips import ChipsOfValues, chip_of_variable, main_graphs

__all__ = ["settle_chips", "settle_stages", "stage_problems"]


def settle_chips(graph: Graph, value_chips: ChipsOfValues) -> int:
    """Let variables be written where they lie, never in a copy; how many ops moved."""
    changes = 0
    for nested in main_graphs(graph):
        for op in nested.ops:
            chip = value_chips.of(op.operand(0)) if op.op_type == "CopyVarUpdate" else None
            if chip is not None and chip != op.settings.virtual_graph:
                op.settings = replace(op.settings, virtual_graph=chip)
                changes += 1
    return changes


def settle_stages(graph: Graph) -> int:
    """Let variables be written in the last stage that reads or computes them; how many ops moved.

    Another chip gets a copy, which goes with the micro-batch, and may read that at any time.
    """
    changes = 0
    for op in _updates(graph):
        last = max((stage for stage, _ in _stages(op)), default=0)
        if op.settings.pipeline_stage != last:
            op.settings = replace(op.settings, pipeline_stage=last)
            changes += 1
    return changes


def stage_problems(graph: Graph) -> Iterator[str]:
    """Variables that a micro-batch would read before the one in front of it has written them."""
    for op in _updates(graph):
        last = op.settings.pipeline_stage
        early = [(stage, user) for stage, user in _stages(op) if user != "" and stage != last]
        if early:
            where = ", ".join(f"{user} (stage {stage})" for stage, user in dict.fromkeys(early))
            yield (
                f"{op.operand(0).name} is read by {where}, but its new value is complete in stage "
                f"{last} only, when the next micro-batch has passed: put what reads it and what "
                "its new value is computed by into one stage, by __pipeline_stage or annotate"
            )


def _updates(graph: Graph) -> list[Op]:
    return [
        op
        for op in graph.ops
        if op.op_type == "CopyVarUpdate" and op.settings.part is not StepPart.UPDATE
    ]


def _stages(update: Op) -> Iterator[tuple[int, str]]:
    """The stages that compute the new value, as "", and that read the old one, with who does."""
    variable, maker = update.operand(0), update.operand(1).producer
    if maker is not None and maker.settings.pipeline_stage is not None:
        yield maker.settings.pipeline_stage, ""
    chip = chip_of_variable(variable)
    for op in variable.uses:
        stage, copies = op.settings.pipeline_stage, op.op_type in ("CopyVarUpdate", "IpuCopy")
        if not copies and stage is not None and op.settings.virtual_graph == chip:
            yield stage, op.settings.origin or op.op_type
