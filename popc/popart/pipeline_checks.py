"""The checks that a session makes of pipelines and phases, in PopART's order and words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import onnx

from popc.popart.model_names import known_names, place_of, stage_of
from popc.popart.option_enums import VirtualGraphMode
from popc.popart.options import SessionOptions

__all__ = ["placement_problems"]


def placement_problems(
    model: onnx.ModelProto, options: SessionOptions, *, batches: int, trains: bool
) -> Iterator[str]:
    """The mistakes in the stages of a pipeline, and in the options about stages and phases.

    Args:
        model: The model, whose nodes are annotated.
        options: The options of the session.
        batches: The batches of a step.
        trains: Whether there is a backward pass.
    """
    phases = options.executionPhaseSettings.phases
    if phases > 1 and options.virtualGraphMode is not VirtualGraphMode.ExecutionPhases:
        yield "> 1 execution phases requires VirtualGraphMode::ExecutionPhases"
    if options.enableExplicitMainLoops and not options.useHostCopyOps:
        yield "enableExplicitMainLoops requires useHostCopyOps."
    if not options.enablePipelining:
        return
    if options.virtualGraphMode is VirtualGraphMode.Off:
        yield (
            "Pipelining requires the 'virtualGraphMode' session option to not be "
            "VirtualGraphMode::Off."
        )
    known = known_names(model.graph)
    nodes = [node for node in model.graph.node if not known.issuperset(node.output)]
    yield from _stage_problems(nodes)
    if trains and not options.enableGradientAccumulation:
        count = _stages(nodes)
        if batches < count:
            yield (
                f"For pipelining, depth (batchesPerStep) must equal at least the number of "
                f"pipeline stages ({count})"
            )


def _stage_problems(nodes: Sequence[onnx.NodeProto]) -> Iterator[str]:
    of_stages: dict[int, list[onnx.NodeProto]] = defaultdict(list)
    missing: list[onnx.NodeProto] = []
    for node in nodes:
        stage = stage_of(node)
        (missing if stage is None else of_stages[stage]).append(node)
    if missing and of_stages:
        listed = "".join(f"\n  {_named(node)}" for node in missing)
        yield (
            f"Only some ops have had their pipeline stage set. Ops missing the pipeline "
            f"stage:{listed}"
        )
    for stage, members in sorted(of_stages.items()):
        chips = {place_of(node) for node in members}
        if len(chips) > 1:
            ids = ", ".join(str(-1 if chip is None else chip) for chip in chips)
            yield (
                f"Ops [{', '.join(map(_named, members))}] have the same pipeline stage {stage}, "
                f"but different virtual graph ids {{{ids}}}. All ops with the same pipeline stage "
                f"must also have the same virtual graph id"
            )


def _stages(nodes: Sequence[onnx.NodeProto]) -> int:
    """The stages of a pipeline that trains: the backward pass runs through all but the last."""
    stages = [stage_of(node) for node in nodes]
    numbers = stages if any(stage is not None for stage in stages) else map(place_of, nodes)
    return 1 + 2 * max((number for number in numbers if number is not None), default=0)


def _named(node: onnx.NodeProto) -> str:
    return node.name or f"{node.domain or 'ai.onnx'}.{node.op_type}"
