"""Options about where ops run: virtual graphs, pipeline stages."""

from __future__ import annotations

from dataclasses import dataclass, field

from popc.options.replication import ReplicationOptions
from popc.options.schema import described

__all__ = ["PlacementOptions"]


@dataclass(frozen=True, slots=True)
class PlacementOptions(ReplicationOptions):
    """Which chip runs what, and when.  Only random numbers may depend on any of these."""

    accumulate_outer_fragment_schedule: str = field(
        default="serial",
        metadata=described(
            "choice",
            "In which order the chips of a pipeline update their weights. Serial lets one chip "
            "after the other do it, scheduler leaves it to the scheduler; with "
            "overlap_cycle_optimized and overlap_memory_optimized, chips load and store what they "
            "keep in streaming memory at the same time, in the latter case only if it has the "
            "same shapes. Needs enable_pipelining.",
            choices=(
                "scheduler",
                "serial",
                "overlap_cycle_optimized",
                "overlap_memory_optimized",
            ),
            popart="accumulateOuterFragmentSettings.schedule",
        ),
    )
    accumulate_outer_fragment_excluded_virtual_graphs: tuple[int, ...] = field(
        default=(),
        metadata=described(
            "integers",
            "Chips that accumulate_outer_fragment_schedule leaves alone, by number.",
            popart="accumulateOuterFragmentSettings.excludedVirtualGraphs",
        ),
    )
    enable_pipelining: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Let all chips work at the same time, on different micro-batches. Each chip runs a "
            "stage of the model and hands its results on; the pipeline fills before the first "
            "update of the weights, or at the beginning of a step, and is flushed at its end. "
            "Ops are told their stages by __pipeline_stage or by annotate; if none is, the stages "
            "are the virtual graphs. Needs virtual_graph_mode and, for training, "
            "accumulation_factor. Results stay the same bit for bit.",
            popart="enablePipelining",
        ),
    )
    pipeline_schedule: str = field(
        default="grouped",
        metadata=described(
            "choice",
            "How the stages of a pipeline take turns, as in TensorFlow. Grouped runs all stages "
            "in every cycle; interleaved lets each chip alternate between forward and backward "
            "stages, which keeps half as many activations but waits more; sequential runs one "
            "stage at a time, for debugging. Needs enable_pipelining.",
            choices=("grouped", "interleaved", "sequential"),
        ),
    )
    stash_all_tensors_inference_pipeline: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Keep all that a later stage of a pipeline for inference reads. Otherwise "
            "auto_recomputation = pipeline lets that stage compute what it can once more, as it "
            "does in training.",
            popart="stashAllTensorsInferencePipeline",
        ),
    )
    virtual_graph_mode: str = field(
        default="off",
        metadata=described(
            "choice",
            "How ops are spread over the chips, num_ipus of them. Manual follows __ipu_number of "
            "the nodes of the model, or virtual_graph of annotate; auto divides the model into "
            "consecutive parts of about equal bytes of weights and of activations that the "
            "backward pass needs; execution_phases alternates between chips from phase to phase. "
            "Copies between chips become ops.",
            choices=("off", "manual", "auto", "execution_phases"),
            synonyms=(("executionphases", "execution_phases"),),
            popart="virtualGraphMode",
        ),
    )
    virtual_graph_split_ratios: tuple[float, ...] = field(
        default=(),
        metadata=described(
            "numbers",
            "How much each chip gets if virtual_graph_mode is auto. One number for each chip; "
            "what counts is their ratio. Without them all get the same.",
            popart="virtualGraphSplitRatios",
        ),
    )
