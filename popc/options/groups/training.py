"""Options about training: gradients, and updates of weights."""

from __future__ import annotations

from enum import StrEnum

from popc.options.kinds import Choice, Truth, Whole
from popc.options.schema import option
from popc_runtime.ground.frozen import inheritable

__all__ = [
    "MeanStrategy",
    "MergeVarUpdate",
    "OwnReduction",
    "Reduction",
    "TrainingOptions",
]


class Reduction(StrEnum):
    """The combination of the gradients of a batch, and of replicas."""

    SUM = "sum"
    MEAN = "mean"


class OwnReduction(StrEnum):
    """The combination of the gradients of one kind of parts of a batch."""

    COMMON = "common"  # as of the other kind
    SUM = "sum"
    MEAN = "mean"


class MeanStrategy(StrEnum):
    """The way in which gradients are averaged."""

    POST = "post"
    RUNNING = "running"


class MergeVarUpdate(StrEnum):
    """The weights that are updated together."""

    OFF = "off"
    ALL = "all"
    AUTO_TIGHT = "auto_tight"
    AUTO_LOOSE = "auto_loose"


@inheritable
class TrainingOptions:
    """The settings for adding up gradients and updating weights."""

    accumulation_and_replication_reduction_type: Reduction = option(
        Choice(*Reduction),
        Reduction.SUM,
        "How gradients of the micro-batches of a batch, and of replicas, are combined: added up "
        "or averaged.",
        popart="accumulationAndReplicationReductionType",
    )
    accumulation_factor: int = option(
        Whole(low=1),
        1,
        "Number of micro-batches that add up their gradients before an update. Inputs "
        "and outputs get a dimension of this size, after that of batches_per_step, if it is "
        "larger than 1. Training only.",
        popart="accumulationFactor",
    )
    decompose_grad_sum: bool = option(
        Truth(),
        False,
        "Add the gradients of one tensor up as soon as each is known. Otherwise all that the "
        "tensor has from several uses are added at once: fewer ops, but more memory.",
        popart="decomposeGradSum",
    )
    delay_var_updates: bool = option(
        Truth(),
        False,
        "Update weights when nothing else is left to do. Otherwise an update runs when that "
        "needs the least memory, which mostly is as soon as the gradient is known. PopART "
        "delays them unless loops and recomputation are explicit, as they are here. Training "
        "only.",
        popart="delayVarUpdates",
    )
    ensure_fp32_loss_scale_tensor: bool = option(
        Truth(),
        False,
        "Compute a float16 loss in float32, so that the loss scale may be larger than 65504. "
        "Training only.",
        popart="ensureFp32LossScaleTensor",
    )
    loose_threshold_at_peak: int = option(
        Whole(),
        8000,
        "Bytes of weights that may wait to be updated where memory is tightest. Where the "
        "backward pass needs less memory, as many more may wait. For merge_var_update = "
        "auto_loose.",
        popart="looseThresholdAtPeak",
    )
    mean_accumulation_and_replication_reduction_strategy: MeanStrategy = option(
        Choice(*MeanStrategy),
        MeanStrategy.POST,
        "How gradients are averaged. Post adds them up and divides once; running keeps the "
        "mean of those seen so far, which does not overflow in half precision.",
        popart="meanAccumulationAndReplicationReductionStrategy",
    )
    merge_var_update: MergeVarUpdate = option(
        Choice(*MergeVarUpdate, synonyms={"none": MergeVarUpdate.OFF}),
        MergeVarUpdate.OFF,
        "Update weights together whose updates have the same arithmetic. That is "
        "fewer ops, which pays if there are many small weights, but gradients live longer. All "
        "merges whatever can be merged; auto_tight makes groups of "
        "merge_var_update_mem_threshold bytes, for which weights are cut; auto_loose merges "
        "whole weights, as far as memory allows (see loose_threshold_at_peak). Results are the "
        "same. Not for Lamb, whose steps depend on norms of single weights. Training only.",
        popart="mergeVarUpdate",
    )
    merge_var_update_mem_threshold: int = option(
        Whole(low=1),
        1_000_000,
        "Most bytes of weights that merge_var_update puts together, unless it is all. For "
        "auto_tight at least those of a weight on average, as smaller groups would be more "
        "updates than there are weights.",
        popart="mergeVarUpdateMemThreshold",
    )
    micro_batch_reduction_type: OwnReduction = option(
        Choice(*OwnReduction),
        OwnReduction.COMMON,
        "How gradients of the micro-batches of a batch are combined. Common means as "
        "accumulation_and_replication_reduction_type says. Training only.",
    )
    replica_reduction_type: OwnReduction = option(
        Choice(*OwnReduction),
        OwnReduction.COMMON,
        "How gradients of replicas are combined. Common means as "
        "accumulation_and_replication_reduction_type says. Training only.",
    )
    schedule_non_weight_update_gradient_consumers_early: bool = option(
        Truth(),
        False,
        "Add a gradient to those of earlier micro-batches as soon as it is known. That may "
        "take more memory. With accumulation_factor. Training only.",
        popart="scheduleNonWeightUpdateGradientConsumersEarly",
    )

    @property
    def reduction_of_micro_batches(self) -> Reduction:
        """The combination of the gradients of micro-batches."""
        return self._reduction(self.micro_batch_reduction_type)

    @property
    def reduction_of_replicas(self) -> Reduction:
        """The combination of the gradients of replicas."""
        return self._reduction(self.replica_reduction_type)

    def _reduction(self, own: OwnReduction) -> Reduction:
        if own is OwnReduction.COMMON:
            return self.accumulation_and_replication_reduction_type
        return Reduction(own.value)
