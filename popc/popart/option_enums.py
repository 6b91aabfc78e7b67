"""PopART's enumerations that options and optimizers are set to: its values, in its order."""

from __future__ import annotations

from popc.popart.enums import NativeEnum

__all__ = [
    "AccumulateOuterFragmentSchedule",
    "AdamMode",
    "AdaptiveMode",
    "AutodiffStitchStrategy",
    "BatchSerializationBatchSchedule",
    "BatchSerializationMethod",
    "BatchSerializationTransformContext",
    "ExecutionPhaseIOSchedule",
    "ExecutionPhaseSchedule",
    "GradientTensorTrackingMethod",
    "Instrumentation",
    "MeanReductionStrategy",
    "MergeVarUpdateType",
    "PatternsLevel",
    "RecomputationType",
    "SGDAccumulatorAndMomentum",
    "SubgraphCopyingStrategy",
    "SyntheticDataMode",
    "VirtualGraphMode",
    "WeightDecayMode",
]


class AccumulateOuterFragmentSchedule(NativeEnum):
    """The order of the outer fragment of gradient accumulation."""

    Scheduler = 0
    Serial = 1
    OverlapCycleOptimized = 2
    OverlapMemoryOptimized = 3


class AdamMode(NativeEnum):
    """Variants of the Adam optimizer."""

    Adam = 0
    AdamNoBias = 1
    Lamb = 3
    LambNoBias = 4
    AdaMax = 2


class AdaptiveMode(NativeEnum):
    """Optimizers with adaptive learning rates."""

    AdaGrad = 0
    RMSProp = 1
    CenteredRMSProp = 2
    AdaDelta = 3


class AutodiffStitchStrategy(NativeEnum):
    """The way in which a backward subgraph gets what its forward graph computed."""

    RecomputeMinimal = 0
    RecomputeAllNonInputs = 1
    AddFwdOutputs = 2
    SafeAddFwdOutputs = 3


class BatchSerializationBatchSchedule(NativeEnum):
    """The order of the parts of a batch."""

    Scheduler = 0
    Isomorphic = 1
    OverlapOnIo = 2
    OverlapOnCompute = 3


class BatchSerializationMethod(NativeEnum):
    """The form of the program for the parts of a batch."""

    UnrollDynamic = 0
    UnrollStatic = 1
    Loop = 2


class BatchSerializationTransformContext(NativeEnum):
    """The time when a batch is cut into parts."""

    Forward = 0
    Backward = 1
    Fwd = 0
    Bwd = 1


class ExecutionPhaseIOSchedule(NativeEnum):
    """The time when data of a phase are loaded."""

    Preload = 0
    OnDemand = 1


class ExecutionPhaseSchedule(NativeEnum):
    """The order of the ops of a phase."""

    Interleaving = 0
    Batch = 1
    BatchClusteredIO = 2


class GradientTensorTrackingMethod(NativeEnum):
    """The tensors that automatic loss scaling looks at."""

    ConvAndMatmulGradients = 1
    AllNonViewChangingGradientTensors = 0
    GradientsOfUserSpecifiedTensors = 2


class Instrumentation(NativeEnum):
    """The part whose cycles are counted."""

    Outer = 0
    Inner = 1


class MeanReductionStrategy(NativeEnum):
    """The time when a mean of gradients is divided."""

    Running = 0
    Post = 1


class MergeVarUpdateType(NativeEnum):
    """The updates of variables that are merged."""

    Off = 0
    All = 1
    AutoTight = 3
    AutoLoose = 2


class PatternsLevel(NativeEnum):
    """Sets of patterns."""

    All = 3
    Default = 2
    Minimal = 1
    NoPatterns = 0


class RecomputationType(NativeEnum):
    """The results that the backward pass computes once more."""

    NoRecompute = 0
    Standard = 1
    NormOnly = 2
    RecomputeAll = 4
    Pipeline = 3


class SGDAccumulatorAndMomentum(NativeEnum):
    """The choice if SGD keeps one tensor for gradients and momentum."""

    Combined = 0
    Separate = 1


class SubgraphCopyingStrategy(NativeEnum):
    """The time when operands of a subgraph are copied."""

    OnEnterAndExit = 0
    JustInTime = 1


class SyntheticDataMode(NativeEnum):
    """The replacement of data of the host."""

    Off = 0
    Zeros = 1
    RandomNormal = 2
    RandomUniform = 3


class VirtualGraphMode(NativeEnum):
    """The placement of ops on devices."""

    Off = 0
    Manual = 1
    Auto = 2
    ExecutionPhases = 3


class WeightDecayMode(NativeEnum):
    """The form of weight decay."""

    Decay = 0
    L2Regularization = 1
