"""Every operator of ai.graphcore is importable, or listed with the reason why not."""

from __future__ import annotations

from typing import Final

import pytest
from onnx import helper

from popc.frontend import LoadedModel, find_unsupported
from popc.frontend.rules import RULES

_DOMAIN: Final = "ai.graphcore"

# Method of PopART's `builder.aiGraphcore` -> the operator of the node that it makes.
_BUILDER: Final = {
    "abort": "Abort",
    "atan2": "Atan2",
    "batchnormalization": "BatchNormalization",
    "bitwiseand": "BitwiseAnd",
    "bitwisenot": "BitwiseNot",
    "bitwiseor": "BitwiseOr",
    "bitwisexnor": "BitwiseXnor",
    "bitwisexor": "BitwiseXor",
    "bucketize": "Bucketize",
    "call": "Call",
    "copyvarupdate": "CopyVarUpdate",
    "ctcbeamsearchdecoder": "CtcBeamSearchDecoder",
    "ctcloss": "Ctc",
    "depthtospace": "DepthToSpace",
    "detach": "Detach",
    "dynamicadd": "DynamicAdd",
    "dynamicslice": "DynamicSlice",
    "dynamicupdate": "DynamicUpdate",
    "dynamiczero": "DynamicZero",
    "expm1": "Expm1",
    "fmod": "Fmod",
    "gelu": "Gelu",
    "geluerf": "GeluErf",
    "groupedgather": "GroupedGather",
    "groupedscatterreduce": "ScatterReduce",
    "groupnormalization": "GroupNormalization",
    "identityloss": "IdentityLoss",
    "incrementmod": "IncrementMod",
    "init": "Init",
    "l1loss": "L1",
    "log1p": "Log1p",
    "lstm": "LSTM",
    "multiconv": "MultiConv",
    "nearbyint": "NearbyInt",
    "nllloss": "Nll",
    "nop": "Nop",
    "normalize_image": "NormalizeImage",
    "packedDataBlock": "PackedDataBlock",
    "printtensor": "PrintTensor",
    "reducemedian": "ReduceMedian",
    "remainder": "Remainder",
    "replicatedallreduce": "ReplicatedAllReduce",
    "replicatedreducescatter": "ReplicatedReduceScatter",
    "reshape": "Reshape",
    "reverse": "Reverse",
    "round": "Round",
    "scale": "Scale",
    "scaledadd": "ScaledAdd",
    "scatterreduce": "ScatterReduce",
    "sequenceslice": "SequenceSlice",
    "shapeddropout": "ShapedDropout",
    "slice": "Slice",
    "sort": "Sort",
    "splinebasis": "SplineBasis",
    "splineweighting": "SplineWeighting",
    "subsample": "Subsample",
    "swish": "Swish",
    "tensorremap": "TensorRemap",
}
# Operators that PopART registers, but for which its builder has no method.
_REGISTERED: Final = (
    *("AddLhsInplace", "AllReduce", "AutoLossScaleProxy", "BinaryConstScalar"),
    *("CastThenPow2Scale", "ConvFlipWeights", "Histogram", "HostLoad", "HostStore"),
    *("LossScaleUpdate", "Pow2ScaleThenCast", "RemoteCodeLoad", "RemoteLoad"),
    *("RemoteLoadInplace", "RemoteStore", "ReplicatedAllGather", "ReplicatedAllReduceInplace"),
    *("Resize", "Square", "Zeros", "ZerosLike"),
)
# Operators named as functions of TensorFlow for the IPU -> those functions.
_TENSORFLOW: Final = {
    "AllGather": "all_to_all_op.all_gather",
    "AllToAll": "all_to_all_op.all_to_all",
    "AssumeEqualAcrossReplicas": "cross_replica_ops.assume_equal_across_replicas",
    "AUGRU": "rnn_ops.PopnnAUGRU",
    "CrossReplicaSum": "cross_replica_ops.cross_replica_sum",
    "DynamicGRU": "rnn_ops.PopnnDynamicGRU",
    "EmbeddingLookup": "embedding_ops.embedding_lookup",
    "FixedWidthBins": "statistics_ops.fixed_width_bins",
    "GRU": "rnn_ops.PopnnGRU",
    "GroupedScatterReduce": "builder.aiGraphcore.groupedscatterreduce",
    "HardSigmoid": "nn_ops.hard_sigmoid",
    "HistogramUpdate": "statistics_ops.histogram_update",
    "HostCall": "host_embedding, ops.cpu_user_operation, outside_compilation_scope",
    "InstanceNormalization": "normalization_ops.instance_norm",
    "LayerNormalization": "normalization_ops.layer_norm",
    "ReduceScatter": "reduce_scatter_op.reduce_scatter",
    "ReplicatedBroadcast": "collectives of PopXL: broadcast",
    "ReplicationIndex": "replication_ops.replication_index",
    "SequenceSlicePack": "slicing_ops.sequence_slice_pack",
    "SequenceSliceUnpack": "slicing_ops.sequence_slice_unpack",
    "SerializedMatMul": "math_ops.serialized_matmul",
}
_MADE_BY_PASSES: Final = "PopART's own passes make it of operators that models have"
_NOT_IMPORTED: Final = {
    "AddLhsInplace": _MADE_BY_PASSES,
    "AllReduce": "exchanges tensors between the IPUs of one replica",
    "AutoLossScaleProxy": _MADE_BY_PASSES,
    "BinaryConstScalar": _MADE_BY_PASSES,
    "ConvFlipWeights": _MADE_BY_PASSES,
    "HostLoad": _MADE_BY_PASSES,
    "HostStore": _MADE_BY_PASSES,
    "LossScaleUpdate": _MADE_BY_PASSES,
    "RemoteCodeLoad": "there is no remote memory that holds code",
    "RemoteLoad": "there is no remote memory that models name",
    "RemoteLoadInplace": "there is no remote memory that models name",
    "RemoteStore": "there is no remote memory that models name",
    "ReplicatedAllReduceInplace": _MADE_BY_PASSES,
}
_OPERATORS: Final = sorted({*_BUILDER.values(), *_REGISTERED, *_TENSORFLOW})


@pytest.mark.parametrize("op_type", _OPERATORS)
def test_operator_can_be_imported(op_type: str) -> None:
    node = helper.make_node(op_type, [], ["y"], domain=_DOMAIN)
    model = helper.make_model(
        helper.make_graph([node], "g", [], []), opset_imports=[helper.make_opsetid(_DOMAIN, 1)]
    )
    missing = [row.reason for row in find_unsupported(LoadedModel(model, "", ""))]
    assert bool(missing) == (op_type in _NOT_IMPORTED), missing or "is no exception any more"


def test_rules_are_for_operators_that_exist() -> None:
    assert {op_type for domain, op_type in RULES if domain == _DOMAIN} <= set(_OPERATORS)


def test_the_builder_has_58_methods() -> None:
    assert len(_BUILDER) == 58
