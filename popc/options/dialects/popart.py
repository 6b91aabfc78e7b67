"""PopART's SessionOptions: camelCase names that popc understands, and those it does not have yet."""

from __future__ import annotations

from typing import Final

from popc.options.schema import SCHEMA

__all__ = ["OPTIONS", "UNSUPPORTED"]

OPTIONS: Final = {spec.popart: spec.name for spec in SCHEMA if spec.popart}

# Known names get a better answer than "did you mean".
UNSUPPORTED: Final = frozenset(
    """
    accumulateOuterFragmentSettings accumulationAndReplicationReductionType accumulationFactor
    accumulatorTensorLocationSettings activationTensorLocationSettings aliasZeroCopy
    autoRecomputation autodiffSettings automaticLossScalingSettings batchSerializationSettings
    bufferingDepthMap cachePath compileEngine constantWeights convolutionOptions
    createImplicitPipeliningFwdOnlyProgram customCodeletCompileFlags customCodelets
    decomposeGradSum defaultBufferingDepth defaultPrefetchBufferingDepth delayVarUpdates
    disableGradAccumulationTensorStreams disableOptimizerStateTensorStreams dotChecks dotOpNames
    enableConstantFoldingOfMultipleConsumers enableDistributedReplicatedGraphs
    enableEfficientOverlapIOTopoCons enableEngineCaching enableExplicitMainLoops
    enableFloatingPointChecks enableFullyConnectedPass enableGradientAccumulation
    enableInplaceAmbiguityChecking enableLoadAndOffloadRNGState enableMergeExchange
    enableNonStableSoftmax enableOutlining enableOutliningCopyCostPruning enablePipelining
    enablePrefetchDatastreams enableReplicatedGraphs enableSerializedMatmuls enableStableNorm
    enableStochasticRounding enableSupportedDataTypeCasting enableVariablesCaching engineOptions
    ensureFp32LossScaleTensor executionPhaseSettings experimentalSettings explicitRecomputation
    exportPoplarComputationGraph exportPoplarVertexGraph finalDotOp firstDotOp gclOptions
    globalReplicaOffset globalReplicationFactor groupHostSync groupNormStridedChannelGrouping
    hardwareInstrumentations instrumentWithHardwareCycleCounter logDir looseThresholdAtPeak
    lstmOptions matmulOptions meanAccumulationAndReplicationReductionStrategy mergeVarUpdate
    mergeVarUpdateMemThreshold numIOTiles optimizerStateTensorLocationSettings opxAliasChecking
    opxModifyChecking outlineSequenceBreakCost outlineThreshold partialsTypeMatMuls
    prefetchBufferingDepthMap rearrangeAnchorsOnHost rearrangeStreamsOnHost replicatedCollectivesSettings
    replicatedGraphCount reportOptions scheduleNonWeightUpdateGradientConsumersEarly
    separateCallOpPdfs serializedPoprithmsShiftGraphsDir stashAllTensorsInferencePipeline
    strictOpVersions subgraphCopyingStrategy swapLimitScheduler syntheticDataMode
    tensorLocationSettingsOverride throwIfLog2ScaleTensorNotInRange timeLimitScheduler
    transitiveClosureOptimizationThreshold updatableNamedBuffers useHostCopyOps
    useLoopCandidateCreator virtualGraphMode virtualGraphSplitRatios weightTensorLocationSettings
    """.split()
)
