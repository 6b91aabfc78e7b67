"""Options about where ops run: virtual graphs, pipeline stages."""

from __future__ import annotations

from enum import StrEnum

from popc.options.kinds import Choice, Number, Several, Truth, Whole
from popc.options.schema import option
from popc_runtime.ground.frozen import inheritable

__all__ = [
    "OuterFragmentSchedule",
    "PipelineSchedule",
    "PlacementOptions",
    "VirtualGraphMode",
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


@inheritable
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
    device_mapping: tuple[int, ...] = option(
        Several(Whole()),
        (),
        "The chip of each stage if virtual_graph_mode is auto, as in TensorFlow. The model is "
        "divided into as many stages as there are numbers; stage k runs on the chip of the k-th "
        "number. A chip may have several stages of a pipeline. Without, stage k runs on chip k.",
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
