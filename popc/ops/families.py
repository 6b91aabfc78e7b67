"""The file of the definition of each op: imported only when a graph has such an op.

A model has a few kinds of ops, and importing the definitions of all takes longer than compiling a
small model.  What is asked of graphs that have no op of a kind stands here too.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FAMILIES", "RANDOM", "VIEWS"]

# By file: its ops, with blanks between them.
_LISTED: Final[dict[str, str]] = {
    "activation": (
        "Celu Clip Elu Erf FakeQuantize Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu "
        "Selu Shrink Sigmoid Softplus Softsign Swish Tanh ThresholdedRelu"
    ),
    "activation_grad": (
        "CeluGrad ClipGrad EluGrad ErfGrad FakeQuantizeGrad GeluGrad HardSigmoidGrad "
        "HardSwishGrad LeakyReluGrad MishGrad PReluGrad ReluGrad SeluGrad ShrinkGrad "
        "SigmoidGrad SoftplusGrad SoftsignGrad SwishGrad TanhGrad ThresholdedReluGrad"
    ),
    "attention": "Attention AttentionGrad RotaryEmbedding",
    "cast": "BitCast Cast",
    "collectives": (
        "AllToAll AssumeEqualAcrossReplicas ReplicaIndex ReplicaPart ReplicatedAllGather "
        "ReplicatedAllReduce ReplicatedBroadcast ReplicatedReduceScatter"
    ),
    "conv": "Col2Im Conv ConvTranspose ConvWeightsGrad DeformConv DeformConvGrad",
    "ctc": "Ctc CtcBeamSearchDecoder",
    "custom": "Custom CustomGrad HostCall",
    "dynamic": "DynamicAdd DynamicSlice DynamicUpdate DynamicZero",
    "effects": "Abort Detach PrintTensor",
    "elementwise": (
        "Abs Acos Acosh Add And Asin Asinh Atan Atan2 Atanh BitShift BitwiseAnd BitwiseNot "
        "BitwiseOr BitwiseXor Ceil Cos Cosh Div Equal Exp Expm1 Floor Greater GreaterOrEqual "
        "IsInf IsNaN Less LessOrEqual Log Log1p Max MaxArgGrad Min MinArgGrad Mod Mul Neg Not "
        "Or Pow Reciprocal Round ScaledAdd Sign Sin Sinh Sqrt Square Sub Sum Tan Where Xor"
    ),
    "experts": "ExpertMatMul ExpertMatMulNBits",
    "float8": "CastThenPow2Scale Pow2ScaleThenCast",
    "fused": "FusedElementwise",
    "host": "HostLoad HostStore IoTileCopy",
    "image": "GridSample GridSampleGrad GridSampleGridGrad",
    "indexing": "Gather GatherElements GatherGrad GatherND OneHot",
    "integer": "ConvInteger MatMulInteger",
    "loss": (
        "NegativeLogLikelihoodLoss NegativeLogLikelihoodLossGrad Nll NllGrad "
        "SoftmaxCrossEntropyLoss SoftmaxCrossEntropyLossGrad"
    ),
    "matmul": "Det DetGrad Gemm Inverse MatMul",
    "movement": "Concat Copy Expand Reshape ReverseSequence Slice Split Tile Transpose Trilu",
    "nbits": "MatMulNBits",
    "norm": (
        "BatchNormalization BatchNormalizationTraining GroupNormalization InstanceNormalization "
        "LRN LayerNormalization RMSNormalization"
    ),
    "norm_grad": (
        "BatchNormalizationGrad GroupNormalizationGrad InstanceNormalizationGrad LRNGrad "
        "LayerNormalizationGrad RMSNormalizationGrad"
    ),
    "optimizer": (
        "AccumulateMoment AdaDeltaUpdater AdamUpdater AdamVarUpdate Histogram LambSquare "
        "LambVarUpdate LossScaleUpdate RMSPropUpdater SGD0VarUpdate SGD1AcclUpdate "
        "SGD1VarUpdate SGD2AcclUpdate SGDNesterovVarUpdate ScaledGradient ScaledVarUpdate"
    ),
    "packing": "SequenceSlice SequenceSliceGrad",
    "pad": "Pad PadGrad",
    "placement": "Boundary IpuCopy Restore Stash",
    "pool": "AveragePool AveragePoolGrad LpPool MaxPool MaxPoolGrad MaxUnpool",
    "quantize": "DequantizeLinear DynamicQuantizeLinear QuantizeLinear Requantize",
    "random": "Dropout DropoutGrad Multinomial RandomNormal RandomSeed RandomUniform SeededDropout",
    "reduce": (
        "ArgMax ArgMin CumProd CumProdGrad CumSum Hardmax ReduceL1 ReduceL2 ReduceLogSum "
        "ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
    ),
    "regions": "MaxRoiPool MaxRoiPoolGrad RoiAlign RoiAlignGrad",
    "resize": "Resize ResizeGrad",
    "rnn": (
        "DynamicQuantizeLSTM GRU GRUGrad LSTM LSTMGrad LinearAttention LinearAttentionGrad RNN "
        "RNNGrad"
    ),
    "scatter": "ScatterElements ScatterND TensorScatter",
    "scatter_reduce": "ScatterReduce",
    "signal": "DFT MelWeightMatrix STFT",
    "sizes": "CheckSize NonMaxSuppression NonZero PlacesWithin Unique",
    "softmax": "LogSoftmax LogSoftmaxGrad Softmax SoftmaxGrad",
    "sort": "TopK",
    "spline": "SplineBasis SplineBasisGrad SplineWeighting SplineWeightingGrad",
    "statistics": "BinCount Bucketize ReduceMedian",
    "streaming": "RemoteGather RemoteLoad RemoteScatterAdd RemoteStore",
    "text": "TfIdfVectorizer",
    "trees": "TreeEnsemble",
    "variables": "Accumulate CopyVarUpdate",
}

FAMILIES: Final = {family: names.split() for family, names in _LISTED.items()}

# Those whose definition has a view rule, and those that draw random numbers.
VIEWS: Final = frozenset(
    {
        "AssumeEqualAcrossReplicas",
        "BitCast",
        "Boundary",
        "Detach",
        "Expand",
        "IpuCopy",
        "Reshape",
        "Slice",
        "Split",
        "Transpose",
    }
)
RANDOM: Final = frozenset(
    {
        "Accumulate",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomSeed",
        "RandomUniform",
    }
)
