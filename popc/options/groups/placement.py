"""Options about where ops run: virtual graphs, pipeline stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from popc.options.groups.recomputation import AutoRecomputation
from popc.options.groups.steps import anchors_given
from popc.options.kinds import Choice, Number, Several, Truth, Whole
from popc.options.schema import option
from popc_runtime.format import ReturnType

if TYPE_CHECKING:
    from popc.options.options import Options

__all__ = [
    "OuterFragmentSchedule",
    "PipelineSchedule",
    "PlacementOptions",
    "VirtualGraphMode",
    "conflicts",
    "ignored_places",
    "pipeline_training_conflicts",
]


class OuterFragmentSchedule(StrEnum):
    """In which order the chips of a pipeline update their weights."""

    SCHEDULER = "scheduler"
    SERIAL = "serial"
    OVERLAP_CYCLE_OPTIMIZED = "overlap_cycle_optimized"
    OVERLAP_MEMORY_OPTIMIZED = "overlap_memory_optimized"


class PipelineSchedule(StrEnum):
    """The turns of the stages of a pipeline."""

    GROUPED = "grouped"
    INTERLEAVED = "interleaved"
    SEQUENTIAL = "sequential"


class VirtualGraphMode(StrEnum):
    """The distribution of ops over the chips."""

    OFF = "off"
    MANUAL = "manual"
    AUTO = "auto"
    EXECUTION_PHASES = "execution_phases"


_NEED_PIPELINING: Final = (
    "accumulate_outer_fragment_schedule",
    "accumulate_outer_fragment_excluded_virtual_graphs",
    "pipeline_schedule",
    "stash_all_tensors_inference_pipeline",
)


@dataclass(frozen=True)
class PlacementOptions:
    """The places and times of ops.  Only random numbers may depend on any of these."""

    accumulate_outer_fragment_excluded_virtual_graphs: tuple[int, ...] = option(
        Several(Whole()),
        (),
        "Chips that accumulate_outer_fragment_schedule leaves alone, by number.",
        popart="accumulateOuterFragmentSettings.excludedVirtualGraphs",
    )
    accumulate_outer_fragment_schedule: OuterFragmentSchedule = option(
        Choice(*OuterFragmentSchedule),
        OuterFragmentSchedule.SERIAL,
        "Order in which the chips of a pipeline update their weights. Serial lets one chip "
        "after the other do it, scheduler leaves it to the scheduler; with "
        "overlap_cycle_optimized and overlap_memory_optimized, chips load and store what they "
        "keep in streaming memory at the same time, in the latter case only if it has the "
        "same shapes. Needs enable_pipelining.",
        popart="accumulateOuterFragmentSettings.schedule",
    )
    enable_pipelining: bool = option(
        Truth(),
        False,
        "Let all chips work at the same time, on different micro-batches. Each chip runs a "
        "stage of the model and hands its results on; the pipeline fills before the first "
        "update of the weights, or at the beginning of a step, and is flushed at its end. "
        "__pipeline_stage or annotate assigns ops to stages; if neither does, the stages "
        "are the virtual graphs. Needs virtual_graph_mode and, for training, "
        "accumulation_factor. Results stay the same bit for bit.",
        popart="enablePipelining",
    )
    layers_per_ipu: tuple[int, ...] = option(
        Several(Whole(low=-1)),
        (),
        "How many layers of the model each chip gets if virtual_graph_mode is auto. Layers are "
        "numbered in names of nodes, as in layer.3, blocks/3 or h.3. What stands in front of the "
        "first layer goes to the first chip, what follows the last one to the last chip. -1 "
        "stands for an even part of the layers that are left, as in Optimum.",
    )
    pipeline_schedule: PipelineSchedule = option(
        Choice(*PipelineSchedule),
        PipelineSchedule.GROUPED,
        "How the stages of a pipeline take turns, as in TensorFlow. Grouped runs all stages "
        "in every cycle; interleaved lets each chip alternate between forward and backward "
        "stages, which keeps half as many activations but waits more; sequential runs one "
        "stage at a time, for debugging. Needs enable_pipelining.",
    )
    stash_all_tensors_inference_pipeline: bool = option(
        Truth(),
        False,
        "Keep all that a later stage of a pipeline for inference reads. Otherwise "
        "auto_recomputation = pipeline lets that stage compute what it can once more, as it "
        "does in training.",
        popart="stashAllTensorsInferencePipeline",
    )
    virtual_graph_mode: VirtualGraphMode = option(
        Choice(*VirtualGraphMode),
        VirtualGraphMode.OFF,
        "How ops are spread over the chips, num_ipus of them. Manual follows __ipu_number of "
        "the nodes of the model, or virtual_graph of annotate; auto divides the model into "
        "consecutive parts of about equal bytes of weights and of activations that the "
        "backward pass needs; execution_phases alternates between chips from phase to phase. "
        "Copies between chips become ops.",
        popart="virtualGraphMode",
    )
    virtual_graph_split_ratios: tuple[float, ...] = option(
        Several(Number()),
        (),
        "How much each chip gets if virtual_graph_mode is auto. One number for each chip; "
        "what counts is their ratio. Without them all get the same.",
        popart="virtualGraphSplitRatios",
    )


def conflicts(options: Options) -> Iterator[str]:
    """Chips and pipelines that cannot be, each with its remedy."""
    yield from _about_chips(options)
    if options.enable_pipelining:
        yield from _about_pipelines(options)
    else:
        for name in _NEED_PIPELINING:
            if name in options.origins:
                yield f"{name} is about pipelines, but enable_pipelining is false: set it too"
        if options.auto_recomputation is AutoRecomputation.PIPELINE:
            yield (
                "auto_recomputation is pipeline, which computes the stages of a pipeline once "
                "more, but enable_pipelining is false: set it, or choose standard or recompute_all"
            )
    ignored = ignored_places(options)
    for number, rule in enumerate(options.annotate):
        for name, _ in rule.settings:
            if name in ignored:
                yield f"annotate[{number}].{name} would have no effect: {ignored[name]}"


def _about_chips(options: Options) -> Iterator[str]:
    mode, ratios = options.virtual_graph_mode, options.virtual_graph_split_ratios
    if ratios and mode is not VirtualGraphMode.AUTO:
        yield (
            f"virtual_graph_split_ratios divides the model, but virtual_graph_mode is {mode}: set "
            "virtual_graph_mode=auto, or leave the ratios out"
        )
    elif ratios and len(ratios) != options.num_ipus:
        yield (
            f"virtual_graph_split_ratios has {len(ratios)} numbers, but num_ipus is "
            f"{options.num_ipus}: give one number for each chip"
        )
    if ratios and not sum(ratios) > 0:
        yield "virtual_graph_split_ratios are all zero: give at least one chip something to do"
    yield from _about_layers(options)
    if mode is VirtualGraphMode.AUTO and options.num_ipus == 1:
        yield (
            "virtual_graph_mode is auto, but num_ipus is 1: set num_ipus to the number of chips, "
            "or leave virtual_graph_mode off"
        )


def _about_layers(options: Options) -> Iterator[str]:
    layers, mode = options.layers_per_ipu, options.virtual_graph_mode
    if layers and mode is not VirtualGraphMode.AUTO:
        yield (
            f"layers_per_ipu divides the model, but virtual_graph_mode is {mode}: set "
            "virtual_graph_mode=auto, or leave the layers out"
        )
    elif layers and options.virtual_graph_split_ratios:
        yield "layers_per_ipu and virtual_graph_split_ratios both divide the model: give one"
    elif layers and len(layers) != options.num_ipus:
        yield (
            f"layers_per_ipu has {len(layers)} numbers, but num_ipus is {options.num_ipus}: give "
            "one number for each chip"
        )


def _about_pipelines(options: Options) -> Iterator[str]:
    mode = options.virtual_graph_mode
    if mode is VirtualGraphMode.OFF:
        yield (
            "enable_pipelining needs chips to run the stages, but virtual_graph_mode is off: set "
            "virtual_graph_mode=manual or auto"
        )
    elif mode is VirtualGraphMode.EXECUTION_PHASES:
        yield (
            "enable_pipelining lets stages overlap, but virtual_graph_mode is execution_phases, "
            "which run one after the other: choose one of them"
        )
    if options.num_ipus == 1:
        yield (
            "enable_pipelining needs at least two chips, but num_ipus is 1: set num_ipus to the "
            "number of chips"
        )
    for what, anchor in anchors_given(options):
        if anchor.type is ReturnType.EVERY_N:
            yield (
                f"{what}: every_n does not go with enable_pipelining: return all values, or the "
                "final one"
            )
    auto = options.auto_recomputation
    if options.stash_all_tensors_inference_pipeline and auto is not AutoRecomputation.PIPELINE:
        yield (
            "stash_all_tensors_inference_pipeline keeps what auto_recomputation=pipeline would "
            f"compute once more, but auto_recomputation is {auto}: leave "
            "one of them out, or set both"
        )


def pipeline_training_conflicts(options: Options) -> Iterator[str]:
    """The limits of a pipeline that trains; `conflicts` are those of all programs."""
    if options.accumulation_factor == 1:
        yield (
            "enable_pipelining trains on several micro-batches at a time, but accumulation_factor "
            "is 1: weights would be updated while later micro-batches still need the old ones; "
            "set accumulation_factor to at least the number of stages, forward and backward"
        )


def ignored_places(options: Options) -> dict[str, str]:
    """The annotations of place that have no effect with these options, and why."""
    mode = options.virtual_graph_mode
    found: dict[str, str] = {}
    if mode is VirtualGraphMode.OFF:
        found["virtual_graph"] = "virtual_graph_mode is off"
    elif mode is VirtualGraphMode.AUTO:
        found["virtual_graph"] = "virtual_graph_mode is auto"
    if not options.enable_pipelining:
        found["pipeline_stage"] = "enable_pipelining is false"
    return found
