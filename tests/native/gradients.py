"""Opcodes of training that have a native form."""

from __future__ import annotations

from typing import Final

__all__ = ["GRADIENTS"]

_SLOPES: Final = (
    *("Celu", "Clip", "Elu", "Erf", "FakeQuantize", "Gelu", "HardSigmoid", "HardSwish"),
    *("LeakyRelu", "Mish", "Relu", "Selu", "Shrink", "Sigmoid", "Softplus", "Softsign", "Swish"),
    *("Tanh", "ThresholdedRelu"),
)
GRADIENTS: Final = frozenset(
    {
        *(f"{name}Grad" for name in _SLOPES),
        *("AccumulateMoment", "AdaDeltaUpdater", "AdamUpdater", "AdamVarUpdate", "LambVarUpdate"),
        *("RMSPropUpdater", "SGD0VarUpdate", "SGD1AcclUpdate", "SGD1VarUpdate", "SGD2AcclUpdate"),
        *("SGDNesterovVarUpdate", "ScaledGradient", "ScaledVarUpdate"),
        *("AttentionGrad", "AveragePoolGrad", "BatchNormalizationGrad"),
        *("GroupNormalizationGrad", "InstanceNormalizationGrad"),
        *("BatchNormalizationTraining", "ConvTranspose", "ConvWeightsGrad", "GatherGrad"),
        *("LayerNormalizationGrad", "LogSoftmaxGrad", "MaxPoolGrad", "RMSNormalizationGrad"),
        *("SoftmaxCrossEntropyLoss", "SoftmaxCrossEntropyLossGrad", "SoftmaxGrad"),
    }
)
