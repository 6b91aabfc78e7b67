"""Every member of PopART's SessionOptions: its kind, its default, and what popc does about it."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from popc.popart.calls import BOOL, FLOAT, INT, STR, Kind, instance_of, list_of
from popc.popart.enums import ReductionType
from popc.popart.locations import TensorLocation, TensorLocationSettings
from popc.popart.option_enums import (
    Instrumentation,
    MeanReductionStrategy,
    MergeVarUpdateType,
    RecomputationType,
    SubgraphCopyingStrategy,
    SyntheticDataMode,
    VirtualGraphMode,
)
from popc.popart.option_records import (
    AccumulateOuterFragmentSettings,
    AutomaticLossScalingSettings,
    BatchSerializationSettings,
    ExecutionPhaseSettings,
    ExperimentalSettings,
    ReplicatedCollectivesSettings,
)
from popc.popart.records import UINT, LiveDict, dict_of, set_of
from popc_runtime.ground.frozen import frozen

__all__ = ["OPTIONS", "OptionRow", "Treatment"]


class Treatment(Enum):
    """The treatment by popc of a member that is not at its default."""

    MAPPED = "an option of popc does the same"
    SESSION = "the session itself does it"
    ALWAYS = "popc always does it, or never needs it"
    NO_EFFECT = "it is accepted and has no effect"
    REFUSED = "it is refused"


@frozen
class OptionRow:
    """A member.

    Attributes:
        name: Its name.
        kind: What it takes.
        default: Makes its default.
        treatment: What popc does about it.
        why: The option of popc, the method of the session, or the reason.
    """

    name: str
    kind: Kind
    default: Callable[[], Any]
    treatment: Treatment
    why: str


_M, _S = Treatment.MAPPED, Treatment.SESSION
_A, _N, _R = Treatment.ALWAYS, Treatment.NO_EFFECT, Treatment.REFUSED


def _is(kind: Kind, value: Any, treatment: Treatment, **reasons: str) -> list[OptionRow]:
    """Members with one kind and default, each with what stands for it."""
    return [OptionRow(name, kind, lambda: value, treatment, why) for name, why in reasons.items()]


def _made(make: type, treatment: Treatment, **reasons: str) -> list[OptionRow]:
    """Members that are objects of a class."""
    kind = instance_of(make)
    return [OptionRow(name, kind, make, treatment, why) for name, why in reasons.items()]


def _dicts(kind: Kind, treatment: Treatment, **reasons: str) -> list[OptionRow]:
    """Members that are dicts from text."""
    return [
        OptionRow(name, dict_of(kind), lambda: LiveDict(kind), treatment, why)
        for name, why in reasons.items()
    ]


def _choice(member: Enum, treatment: Treatment, **reasons: str) -> list[OptionRow]:
    """Members that are one of an enumeration."""
    return _is(instance_of(type(member)), member, treatment, **reasons)


def _list(kind: Kind, treatment: Treatment, **reasons: str) -> list[OptionRow]:
    return [OptionRow(name, list_of(kind), list, treatment, why) for name, why in reasons.items()]


def _cache_folder() -> str:
    """The folder that the environment names for cached programs; "" if it names none."""
    return os.environ.get("POPXL_CACHE_DIR") or os.environ.get("POPART_CACHE_DIR", "")


_NO_POPLAR: Final = "there is no Poplar underneath"
_EXPLICIT: Final = "host transfers, loops and recomputation are always explicit"
_STABLE: Final = "kernels have one form, which is stable and exact"
_ORDER: Final = "samples have one order of elements, on the host and on the device"
_LISTINGS: Final = "the session writes its listings by it"
_CHECKED: Final = "results of kernels never lie over operands unseen: the planner is checked"
_GROWS: Final = "it speeds PopART's scheduler up and has no influence on results"
_PROCESSES: Final = "the processes that mpiexec has started"
_CACHE: Final = "the cache of the session"
_CODELETS: Final = "popc cannot load operators that are compiled for Poplar"
_NOT_DIVIDED: Final = "every replica has its own"
_SUMS: Final = "accumulator_tensor_location; sums that are divided are rounded in another order"
_STREAMS: Final = "the session reads and writes the other variables only"

_FLAGS_OFF: Final = (
    _is(
        BOOL,
        False,
        _M,
        decomposeGradSum="decompose_grad_sum",
        enableFloatingPointChecks="enable_floating_point_checks",
        enableGradientAccumulation="accumulation_factor",
        enableInplaceAmbiguityChecking="enable_inplace_ambiguity_checking",
        enablePipelining="enable_pipelining, unless weights are updated after each micro-batch",
        enableReplicatedGraphs="replicated_graph_count",
        enableStochasticRounding="enable_stochastic_rounding",
        ensureFp32LossScaleTensor="ensure_fp32_loss_scale_tensor",
        groupHostSync="group_host_sync",
        instrumentWithHardwareCycleCounter="instrument_with_hardware_cycle_counter",
        scheduleNonWeightUpdateGradientConsumersEarly=(
            "schedule_non_weight_update_gradient_consumers_early"
        ),
        stashAllTensorsInferencePipeline="stash_all_tensors_inference_pipeline",
    )
    + _is(
        BOOL,
        False,
        _S,
        disableGradAccumulationTensorStreams=_STREAMS,
        disableOptimizerStateTensorStreams=_STREAMS,
        dotOpNames=_LISTINGS,
        enableLoadAndOffloadRNGState="getRNGState and setRNGState",
    )
    + _is(
        BOOL,
        False,
        _A,
        _enableRngStateManagement="the state of random numbers is always kept",
        aliasZeroCopy="operands and results of subgraphs are found where they are",
        enableEfficientOverlapIOTopoCons="overlapped transfers need few constraints",
        enableExplicitMainLoops=_EXPLICIT,
        explicitRecomputation=_EXPLICIT,
        opxAliasChecking=_CHECKED,
        opxModifyChecking=_CHECKED,
        useHostCopyOps=_EXPLICIT,
        useLoopCandidateCreator=_NO_POPLAR,
        enableStableNorm=_STABLE,
        groupNormStridedChannelGrouping="groups of channels are strided, as in PopART",
    )
    + _is(
        BOOL,
        False,
        _N,
        enableNonStableSoftmax=_STABLE,
        exportPoplarComputationGraph=_NO_POPLAR,
        exportPoplarVertexGraph=_NO_POPLAR,
        rearrangeStreamsOnHost=_ORDER,
    )
    + _is(
        BOOL,
        False,
        _R,
        createImplicitPipeliningFwdOnlyProgram="a program either trains or infers: make two",
    )
    + _is(BOOL, False, _S, enableDistributedReplicatedGraphs=_PROCESSES)
)
_FLAGS_ON: Final = (
    _is(
        BOOL,
        True,
        _M,
        constantWeights="constant_weights",
        delayVarUpdates="delay_var_updates",
        enableMergeExchange="enable_merge_exchange",
        enableOutlining="enable_outlining",
        enableOutliningCopyCostPruning="enable_outlining_copy_cost_pruning",
        enablePrefetchDatastreams="enable_prefetch_datastreams",
    )
    + _is(
        BOOL,
        True,
        _S,
        compileEngine="prepareDevice",
        enableSupportedDataTypeCasting="types of anchors and inputs",
        enableVariablesCaching=_CACHE,
        strictOpVersions="the check of the model",
    )
    + _is(
        BOOL,
        True,
        _N,
        enableConstantFoldingOfMultipleConsumers="constants are folded whoever reads them",
        enableFullyConnectedPass=_NO_POPLAR,
        rearrangeAnchorsOnHost=_ORDER,
        separateCallOpPdfs=_NO_POPLAR,
        throwIfLog2ScaleTensorNotInRange="there are no numbers of eight bits with a scale",
    )
)
_NUMBERS: Final = (
    _is(
        INT,
        1,
        _M,
        accumulationFactor="accumulation_factor",
        replicatedGraphCount="replicated_graph_count",
    )
    + _is(INT, 1, _S, globalReplicationFactor=_PROCESSES)
    + _is(INT, 0, _S, globalReplicaOffset=_PROCESSES)
    + _is(INT, 0, _M, numIOTiles="num_io_tiles")
    + _is(INT, 0, _S, firstDotOp=_LISTINGS)
    + _is(INT, 10_000, _S, finalDotOp=_LISTINGS)
    + _is(INT, 1_000_000, _M, mergeVarUpdateMemThreshold="merge_var_update_mem_threshold")
    + _is(INT, 1_000_000_000, _M, swapLimitScheduler="swap_limit_scheduler")
    + _is(UINT, 1, _M, defaultBufferingDepth="default_buffering_depth")
    + _is(
        UINT,
        100_000,
        _M,
        transitiveClosureOptimizationThreshold=("transitive_closure_optimization_threshold"),
    )
    + _is(FLOAT, 1e9, _M, timeLimitScheduler="time_limit_scheduler")
    + _is(FLOAT, 1.0, _M, outlineThreshold="outline_threshold")
    + _is(FLOAT, 10_000.0, _M, outlineSequenceBreakCost="outline_sequence_break_cost")
)
_TEXTS: Final = (
    _is(STR, "", _M, partialsTypeMatMuls="partials_type_matmuls")
    + _is(STR, "greedy", _M, kahnTieBreaker="kahn_tie_breaker")
    + _is(STR, "", _S, logDir=_LISTINGS, serializedPoprithmsShiftGraphsDir=_LISTINGS)
    + _is(STR, "", _R, customCodeletCompileFlags=_CODELETS)
    + [
        OptionRow("cachePath", STR, lambda: _cache_folder() or "session_cache", _S, _CACHE),
        OptionRow("enableEngineCaching", BOOL, lambda: bool(_cache_folder()), _S, _CACHE),
    ]
)
_CHOICES: Final = (
    _choice(RecomputationType.NoRecompute, _M, autoRecomputation="auto_recomputation")
    + _choice(MergeVarUpdateType.Off, _M, mergeVarUpdate="merge_var_update")
    + _choice(
        SubgraphCopyingStrategy.OnEnterAndExit,
        _M,
        subgraphCopyingStrategy=("subgraph_copying_strategy"),
    )
    + _choice(SyntheticDataMode.Off, _M, syntheticDataMode="synthetic_data_mode")
    + _choice(VirtualGraphMode.Off, _M, virtualGraphMode="virtual_graph_mode")
    + _choice(
        ReductionType.Sum,
        _M,
        accumulationAndReplicationReductionType=("accumulation_and_replication_reduction_type"),
    )
    + _choice(
        MeanReductionStrategy.Post,
        _M,
        meanAccumulationAndReplicationReductionStrategy=(
            "mean_accumulation_and_replication_reduction_strategy"
        ),
    )
)
_CONTAINERS: Final = (
    _list(FLOAT, _M, virtualGraphSplitRatios="virtual_graph_split_ratios")
    + _list(STR, _R, customCodelets=_CODELETS)
    + _list(STR, _N, updatableNamedBuffers="every variable can be written at any time")
    + [
        OptionRow("dotChecks", set_of(STR), set, _S, _LISTINGS),
        OptionRow(
            "hardwareInstrumentations",
            set_of(instance_of(Instrumentation)),
            lambda: {Instrumentation.Outer},
            _M,
            "hardware_instrumentations",
        ),
    ]
    + _dicts(UINT, _M, bufferingDepthMap="buffering_depth_map")
    + _dicts(STR, _M, convolutionOptions="partials_type, of the entry partialsType")
    + _dicts(STR, _S, engineOptions="see the table of engine options")
    + _dicts(
        STR,
        _N,
        gclOptions=_NO_POPLAR,
        lstmOptions=_NO_POPLAR,
        matmulOptions=_NO_POPLAR,
    )
    + _dicts(STR, _A, reportOptions="a summary has everything, but steps: see showExecutionSteps")
    + _dicts(
        instance_of(TensorLocation), _M, tensorLocationSettingsOverride="tensor_location_override"
    )
)
_RECORDS: Final = (
    _made(
        AccumulateOuterFragmentSettings,
        _M,
        accumulateOuterFragmentSettings=("accumulate_outer_fragment_..."),
    )
    + _made(
        AutomaticLossScalingSettings,
        _S,
        automaticLossScalingSettings=("automatic_loss_scaling of the training file"),
    )
    + _made(BatchSerializationSettings, _M, batchSerializationSettings="batch_serialization_...")
    + _made(ExecutionPhaseSettings, _M, executionPhaseSettings="execution_phase...")
    + _made(ExperimentalSettings, _R, experimentalSettings=_CODELETS)
    + _made(ReplicatedCollectivesSettings, _M, replicatedCollectivesSettings="merge_...")
    + _made(
        TensorLocationSettings,
        _M,
        accumulatorTensorLocationSettings=_SUMS,
        activationTensorLocationSettings=f"activation_tensor_location; {_NOT_DIVIDED}",
        optimizerStateTensorLocationSettings="optimizer_state_tensor_location",
        weightTensorLocationSettings="weight_tensor_location",
    )
)

# By name.
OPTIONS: Final[dict[str, OptionRow]] = {
    row.name: row
    for row in sorted(
        (
            *(*_FLAGS_OFF, *_FLAGS_ON, *_NUMBERS, *_TEXTS),
            *(*_CHOICES, *_CONTAINERS, *_RECORDS),
        ),
        key=lambda row: row.name,
    )
}
