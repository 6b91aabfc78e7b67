"""The file of the rule for each operator: imported only when a model has such an operator.

A model has a few kinds of operators, and importing the rules for all takes longer than compiling a
small model.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FAMILIES"]

# By file: of each domain the operators, with blanks between them.
_LISTED: Final[dict[str, dict[str, str]]] = {
    "onnx.activation": {
        "": (
            "Celu Clip Elu Erf Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu Selu Shrink "
            "Sigmoid Softplus Softsign Swish Tanh ThresholdedRelu"
        ),
    },
    "onnx.attention": {
        "": "Attention RotaryEmbedding",
    },
    "onnx.cast": {
        "": "BitCast Cast CastLike",
    },
    "onnx.control": {
        "": "If",
    },
    "onnx.conv": {
        "": "Col2Im Conv ConvTranspose DeformConv",
    },
    "onnx.elementwise": {
        "": (
            "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot "
            "BitwiseOr BitwiseXor Ceil Cos Cosh Div Equal Exp Floor Greater GreaterOrEqual IsInf "
            "IsNaN Less LessOrEqual Log Max Mean Min Mod Mul Neg Not Or Pow Reciprocal Round Sign "
            "Sin Sinh Sqrt Sub Sum Tan Where Xor"
        ),
    },
    "onnx.experimental": {
        "": "Affine Crop DynamicSlice ImageScaler ParametricSoftplus Scale ScaledTanh",
    },
    "onnx.generate": {
        "": "BlackmanWindow Constant ConstantOfShape EyeLike HammingWindow HannWindow Range",
    },
    "onnx.gradient": {
        "ai.onnx.preview.training": "Gradient",
    },
    "onnx.image": {
        "": "AffineGrid GridSample ImageDecoder",
    },
    "onnx.indexing": {
        "": "Compress Gather GatherElements GatherND NonZero OneHot",
    },
    "onnx.integer": {
        "": "ConvInteger MatMulInteger QLinearConv QLinearMatMul",
    },
    "onnx.loop": {
        "": "Loop",
    },
    "onnx.loss": {
        "": "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
    },
    "onnx.matmul": {
        "": "Det Einsum Gemm MatMul",
    },
    "onnx.movement": {
        "": (
            "Concat DepthToSpace Expand Flatten Identity Reshape ReverseSequence Shape Size Slice "
            "SpaceToDepth Split Squeeze Tile Transpose Trilu Unsqueeze"
        ),
    },
    "onnx.norm": {
        "": (
            "BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization "
            "MeanVarianceNormalization RMSNormalization"
        ),
    },
    "onnx.pad": {
        "": "Pad",
    },
    "onnx.pool": {
        "": "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxUnpool",
    },
    "onnx.quantize": {
        "": "DequantizeLinear DynamicQuantizeLinear QuantizeLinear",
    },
    "onnx.random": {
        "": (
            "Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform "
            "RandomUniformLike"
        ),
    },
    "onnx.reduce": {
        "": (
            "ArgMax ArgMin CumProd CumSum Hardmax LpNormalization ReduceL1 ReduceL2 ReduceLogSum "
            "ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
        ),
    },
    "onnx.regions": {
        "": "MaxRoiPool NonMaxSuppression RoiAlign",
    },
    "onnx.resize": {
        "": "Resize Upsample",
    },
    "onnx.rnn": {
        "": "GRU LSTM RNN",
    },
    "onnx.scan": {
        "": "Scan",
    },
    "onnx.scatter": {
        "": "Scatter ScatterElements ScatterND TensorScatter",
    },
    "onnx.sequence": {
        "": (
            "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt "
            "SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength "
            "SequenceMap SplitToSequence"
        ),
    },
    "onnx.signal": {
        "": "DFT MelWeightMatrix STFT",
    },
    "onnx.softmax": {
        "": "LogSoftmax Softmax",
    },
    "onnx.sort": {
        "": "TopK Unique",
    },
    "onnx.text": {
        "": "TfIdfVectorizer",
    },
    "onnx.training": {
        "ai.onnx.preview.training": "Adagrad Adam Momentum",
    },
    "graphcore.call": {
        "ai.graphcore": "Call",
    },
    "graphcore.collectives": {
        "ai.graphcore": (
            "AllGather AllToAll AssumeEqualAcrossReplicas CrossReplicaSum ReduceScatter "
            "ReplicatedAllGather ReplicatedAllReduce ReplicatedBroadcast ReplicatedReduceScatter "
            "ReplicationIndex"
        ),
    },
    "graphcore.conv": {
        "ai.graphcore": "MultiConv",
    },
    "graphcore.custom": {
        "ai.graphcore": "HostCall",
    },
    "graphcore.dynamic": {
        "ai.graphcore": (
            "DynamicAdd DynamicSlice DynamicUpdate DynamicZero PackedDataBlock SequenceSlice "
            "SequenceSlicePack SequenceSliceUnpack"
        ),
    },
    "graphcore.effects": {
        "ai.graphcore": "Abort CopyVarUpdate Detach PrintTensor",
    },
    "graphcore.float8": {
        "ai.graphcore": "CastThenPow2Scale Pow2ScaleThenCast",
    },
    "graphcore.loss": {
        "ai.graphcore": "Ctc CtcBeamSearchDecoder IdentityLoss L1 Nll",
    },
    "graphcore.norm": {
        "ai.graphcore": (
            "BatchNormalization GroupNormalization InstanceNormalization LayerNormalization"
        ),
    },
    "graphcore.operators": {
        "ai.graphcore": (
            "Atan2 BitwiseAnd BitwiseNot BitwiseOr BitwiseXnor BitwiseXor DepthToSpace Expm1 Fmod "
            "Gelu GeluErf HardSigmoid IncrementMod Init Log1p NearbyInt Nop Remainder Reshape "
            "Reverse Round Scale ScaledAdd SerializedMatMul Slice Square Subsample Swish "
            "TensorRemap Zeros ZerosLike"
        ),
    },
    "graphcore.resize": {
        "ai.graphcore": "Resize",
    },
    "graphcore.rnn": {
        "ai.graphcore": "AUGRU DynamicGRU GRU LSTM",
    },
    "graphcore.scatter": {
        "ai.graphcore": "EmbeddingLookup GroupedGather GroupedScatterReduce ScatterReduce",
    },
    "graphcore.statistics": {
        "ai.graphcore": (
            "Bucketize FixedWidthBins Histogram HistogramUpdate NormalizeImage ReduceMedian "
            "ShapedDropout Sort SplineBasis SplineWeighting"
        ),
    },
    "microsoft.attention": {
        "com.microsoft": "Attention",
    },
    "microsoft.buffers": {
        "com.microsoft": "DecoderMaskedMultiHeadAttention MultiHeadAttention",
    },
    "microsoft.crop": {
        "com.microsoft": "CropAndResize",
    },
    "microsoft.experts": {
        "com.microsoft": "MoE QMoE",
    },
    "microsoft.group_query": {
        "com.microsoft": "GroupQueryAttention",
    },
    "microsoft.nbits": {
        "com.microsoft": "GatherBlockQuantized MatMulBnb4 MatMulNBits",
    },
    "microsoft.nchwc": {
        "com.microsoft.nchwc": (
            "AveragePool Conv GlobalAveragePool GlobalMaxPool MaxPool ReorderInput ReorderOutput "
            "Upsample"
        ),
    },
    "microsoft.norm": {
        "": "SimplifiedLayerNormalization",
        "com.microsoft": (
            "EmbedLayerNormalization GroupNorm SkipGroupNorm SkipLayerNormalization "
            "SkipSimplifiedLayerNormalization"
        ),
    },
    "microsoft.operators": {
        "com.microsoft": (
            "BiasAdd BiasGelu BiasSoftmax BiasSplitGelu CDist ConvTransposeWithDynamicPads "
            "ExpandDims FastGelu FusedConv FusedGemm FusedMatMul GatherND Gelu GridSample Inverse "
            "MatMulInteger16 NhwcConv NhwcMaxPool Pad QuickGelu Range SampleOp "
            "TransposeMatMul Trilu UnfoldTensor"
        ),
    },
    "microsoft.quantize": {
        "com.microsoft": (
            "DequantizeLinear DynamicQuantizeLSTM DynamicQuantizeMatMul MatMulIntegerToFloat "
            "QAttention QEmbedLayerNormalization QGemm QLinearAdd QLinearAveragePool "
            "QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul "
            "QLinearReduceMean QLinearSigmoid QLinearSoftmax QLinearWhere QuantizeLinear"
        ),
    },
    "microsoft.recurrent": {
        "com.microsoft": (
            "CausalConvWithState GatedAdd GatedRMSNorm LinearAttention LinearAttentionGate"
        ),
    },
    "microsoft.rotary": {
        "com.microsoft": "MRotaryEmbedding RotaryEmbedding",
    },
    "microsoft.search": {
        "com.microsoft": "BeamSearch GreedySearch WhisperBeamSearch",
    },
    "microsoft.streams": {
        "com.microsoft": (
            "BranchwiseRMSNorm EngramGate HyperConnectionPostMix HyperConnectionPreMix "
            "NGramHashMapping ScaledSiLU"
        ),
    },
    "microsoft.tokens": {
        "com.microsoft": "MurmurHash3 NGramRepeatBlock Unique",
    },
    "ml.features": {
        "ai.onnx.ml": (
            "ArrayFeatureExtractor Binarizer FeatureVectorizer Imputer Normalizer OneHotEncoder "
            "Scaler"
        ),
    },
    "ml.labels": {
        "ai.onnx.ml": "CategoryMapper LabelEncoder ZipMap",
    },
    "ml.linear": {
        "ai.onnx.ml": "LinearClassifier LinearRegressor",
    },
    "ml.svm": {
        "ai.onnx.ml": "SVMClassifier SVMRegressor",
    },
    "ml.trees": {
        "ai.onnx.ml": "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor",
    },
}

FAMILIES: Final = {
    module: [(domain, op_type) for domain, names in domains.items() for op_type in names.split()]
    for module, domains in _LISTED.items()
}
