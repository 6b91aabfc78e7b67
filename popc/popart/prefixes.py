"""The prefixes of names that PopART gives tensors itself, and the functions that return them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = [
    "COUNTER_PREFIX",
    "RESERVED",
    "SUM_PREFIX",
    "reservedAccl1Prefix",
    "reservedAccl2Prefix",
    "reservedAccl3Prefix",
    "reservedAcclFinalOutPrefix",
    "reservedAcclPrefix",
    "reservedAcclToReducePrefix",
    "reservedAcclToUpdatePrefix",
    "reservedAccumPrefix",
    "reservedAdamUpdaterPrefix",
    "reservedAutomaticLossScalePrefix",
    "reservedDefaultAdamBeta1Prefix",
    "reservedDefaultAdamBeta2Prefix",
    "reservedDefaultAdamEpsPrefix",
    "reservedDefaultDampeningScaleFactor1Prefix",
    "reservedDefaultLearningRatePrefix",
    "reservedDefaultLossScalingPrefix",
    "reservedDefaultMaxWeightNormPrefix",
    "reservedDefaultScaledLearningRate0Prefix",
    "reservedDefaultScaledLearningRate1Prefix",
    "reservedDefaultScaledMomentum1Prefix",
    "reservedDefaultScaledWeightDecay1Prefix",
    "reservedDefaultStepPrefix",
    "reservedDefaultWeightDecayPrefix",
    "reservedDefaultWeightDecayScaleFactor0Prefix",
    "reservedFinalReducedGradPrefix",
    "reservedGradientPrefix",
    "reservedLambR1SqPrefix",
    "reservedLambR2SqPrefix",
    "reservedLossScalingPrefix",
    "reservedRandomSeedPrefix",
    "reservedRemoteArgPrefix",
    "reservedRestoredPrefix",
    "reservedSeedModifierPrefix",
    "reservedSpecificAdamBeta1Prefix",
    "reservedSpecificAdamBeta2Prefix",
    "reservedSpecificAdamEpsPrefix",
    "reservedSpecificDampeningScaleFactor1Prefix",
    "reservedSpecificLearningRatePrefix",
    "reservedSpecificLossScalingPrefix",
    "reservedSpecificMaxWeightNormPrefix",
    "reservedSpecificScaledLearningRate0Prefix",
    "reservedSpecificScaledLearningRate1Prefix",
    "reservedSpecificScaledMomentum1Prefix",
    "reservedSpecificScaledWeightDecay1Prefix",
    "reservedSpecificStepPrefix",
    "reservedSpecificWeightDecayPrefix",
    "reservedSpecificWeightDecayScaleFactor0Prefix",
    "reservedStashedPrefix",
    "reservedStepPrefix",
    "reservedUpdatedVarPrefix",
    "reserved_prefix_of",
]

SUM_PREFIX: Final = "Accum___"
COUNTER_PREFIX: Final = "Counter___"

# Reserved...Prefix functions: what stands for the dots, and the prefix.
_SINGLE: Final = {
    "Accl": "Accl___",
    "Accl1": "Accl1___",
    "Accl2": "Accl2___",
    "Accl3": "Accl3___",
    "AcclFinalOut": "AcclOutOfAcclUpdate___",
    "AcclToReduce": "AcclIntoReduce___",
    "AcclToUpdate": "AcclIntoUpdate___",
    "Accum": SUM_PREFIX,
    "AdamUpdater": "AdamUpdater___",
    "AutomaticLossScale": "AutomaticLossScaleProxy___",
    "FinalReducedGrad": "FinalReducedGradient___",
    "Gradient": "Gradient___",
    "LambR1Sq": "LambR1Sq___",
    "LambR2Sq": "LambR2Sq___",
    "LossScaling": "lossScaling_",
    "RandomSeed": "randomSeed___",
    "RemoteArg": "RemoteArg___",
    "Restored": "Restored___",
    "SeedModifier": "randomSeedModifier___",
    "Stashed": "Stashed___",
    "Step": "Step___",
    "UpdatedVar": "UpdatedVar___",
}
# Scalars of optimizers, each with a default and with values of single weights.
_SCALARS: Final = (
    *("WeightDecayScaleFactor0", "ScaledLearningRate0", "ScaledWeightDecay1"),
    *("ScaledLearningRate1", "DampeningScaleFactor1", "ScaledMomentum1", "LearningRate"),
    *("WeightDecay", "LossScaling", "MaxWeightNorm", "AdamBeta1", "AdamBeta2", "AdamEps", "Step"),
)
# Names that no function returns.
_INTERNAL: Final = (
    *(COUNTER_PREFIX, "anchorSum___", "anchorFinal___", "cycleCount___", "GlobalNorm___"),
    *("Index___", "Iterator___", "LoopCond___", "lossScaleUpdateFactor"),
)


def _pairs() -> dict[str, str]:
    return {
        f"{kind}{scalar}": f"{scalar[0].lower()}{scalar[1:]}___{kind.lower()}___"
        for scalar in _SCALARS
        for kind in ("Default", "Specific")
    }


def _function(name: str, prefix: str) -> Callable[[], str]:
    def reserved() -> str:
        return prefix

    reserved.__name__ = reserved.__qualname__ = name
    reserved.__doc__ = f'"{prefix}": names of tensors that begin with it are PopART\'s own.'
    return reserved


_F: Final[dict[str, Callable[[], str]]] = {
    f"reserved{name}Prefix": _function(f"reserved{name}Prefix", prefix)
    for name, prefix in {**_SINGLE, **_pairs()}.items()
}

# What no name of an input or output of a model may contain.
RESERVED: Final = (*_SINGLE.values(), *_pairs().values(), *_INTERNAL)


def reserved_prefix_of(name: str) -> str:
    """The prefix that ``name`` contains and must not; "" if there is none."""
    return next((prefix for prefix in RESERVED if prefix in name), "")


reservedAccl1Prefix = _F["reservedAccl1Prefix"]
reservedAccl2Prefix = _F["reservedAccl2Prefix"]
reservedAccl3Prefix = _F["reservedAccl3Prefix"]
reservedAcclFinalOutPrefix = _F["reservedAcclFinalOutPrefix"]
reservedAcclPrefix = _F["reservedAcclPrefix"]
reservedAcclToReducePrefix = _F["reservedAcclToReducePrefix"]
reservedAcclToUpdatePrefix = _F["reservedAcclToUpdatePrefix"]
reservedAccumPrefix = _F["reservedAccumPrefix"]
reservedAdamUpdaterPrefix = _F["reservedAdamUpdaterPrefix"]
reservedAutomaticLossScalePrefix = _F["reservedAutomaticLossScalePrefix"]
reservedDefaultAdamBeta1Prefix = _F["reservedDefaultAdamBeta1Prefix"]
reservedDefaultAdamBeta2Prefix = _F["reservedDefaultAdamBeta2Prefix"]
reservedDefaultAdamEpsPrefix = _F["reservedDefaultAdamEpsPrefix"]
reservedDefaultDampeningScaleFactor1Prefix = _F["reservedDefaultDampeningScaleFactor1Prefix"]
reservedDefaultLearningRatePrefix = _F["reservedDefaultLearningRatePrefix"]
reservedDefaultLossScalingPrefix = _F["reservedDefaultLossScalingPrefix"]
reservedDefaultMaxWeightNormPrefix = _F["reservedDefaultMaxWeightNormPrefix"]
reservedDefaultScaledLearningRate0Prefix = _F["reservedDefaultScaledLearningRate0Prefix"]
reservedDefaultScaledLearningRate1Prefix = _F["reservedDefaultScaledLearningRate1Prefix"]
reservedDefaultScaledMomentum1Prefix = _F["reservedDefaultScaledMomentum1Prefix"]
reservedDefaultScaledWeightDecay1Prefix = _F["reservedDefaultScaledWeightDecay1Prefix"]
reservedDefaultStepPrefix = _F["reservedDefaultStepPrefix"]
reservedDefaultWeightDecayPrefix = _F["reservedDefaultWeightDecayPrefix"]
reservedDefaultWeightDecayScaleFactor0Prefix = _F["reservedDefaultWeightDecayScaleFactor0Prefix"]
reservedFinalReducedGradPrefix = _F["reservedFinalReducedGradPrefix"]
reservedGradientPrefix = _F["reservedGradientPrefix"]
reservedLambR1SqPrefix = _F["reservedLambR1SqPrefix"]
reservedLambR2SqPrefix = _F["reservedLambR2SqPrefix"]
reservedLossScalingPrefix = _F["reservedLossScalingPrefix"]
reservedRandomSeedPrefix = _F["reservedRandomSeedPrefix"]
reservedRemoteArgPrefix = _F["reservedRemoteArgPrefix"]
reservedRestoredPrefix = _F["reservedRestoredPrefix"]
reservedSeedModifierPrefix = _F["reservedSeedModifierPrefix"]
reservedSpecificAdamBeta1Prefix = _F["reservedSpecificAdamBeta1Prefix"]
reservedSpecificAdamBeta2Prefix = _F["reservedSpecificAdamBeta2Prefix"]
reservedSpecificAdamEpsPrefix = _F["reservedSpecificAdamEpsPrefix"]
reservedSpecificDampeningScaleFactor1Prefix = _F["reservedSpecificDampeningScaleFactor1Prefix"]
reservedSpecificLearningRatePrefix = _F["reservedSpecificLearningRatePrefix"]
reservedSpecificLossScalingPrefix = _F["reservedSpecificLossScalingPrefix"]
reservedSpecificMaxWeightNormPrefix = _F["reservedSpecificMaxWeightNormPrefix"]
reservedSpecificScaledLearningRate0Prefix = _F["reservedSpecificScaledLearningRate0Prefix"]
reservedSpecificScaledLearningRate1Prefix = _F["reservedSpecificScaledLearningRate1Prefix"]
reservedSpecificScaledMomentum1Prefix = _F["reservedSpecificScaledMomentum1Prefix"]
reservedSpecificScaledWeightDecay1Prefix = _F["reservedSpecificScaledWeightDecay1Prefix"]
reservedSpecificStepPrefix = _F["reservedSpecificStepPrefix"]
reservedSpecificWeightDecayPrefix = _F["reservedSpecificWeightDecayPrefix"]
reservedSpecificWeightDecayScaleFactor0Prefix = _F["reservedSpecificWeightDecayScaleFactor0Prefix"]
reservedStashedPrefix = _F["reservedStashedPrefix"]
reservedStepPrefix = _F["reservedStepPrefix"]
reservedUpdatedVarPrefix = _F["reservedUpdatedVarPrefix"]
