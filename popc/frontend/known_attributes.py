"""The attributes that a node may have: those that rules read, and those that need no reading.

Operators of the standard have the attributes of their definition, in the version that the model
imports.  For the others, rules see what stands here and nothing else: `Node` hides the rest from
them, so that what is missing here is refused, never swallowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from popc.frontend import messages as onnx
from popc.frontend.custom import custom_operator
from popc.frontend.definitions import find_definition
from popc.frontend.functions import FunctionTable
from popc.frontend.known_microsoft import READ_MICROSOFT, READ_NCHWC
from popc.frontend.names import default_domain_name, did_you_mean, operator_name, shown
from popc.frontend.problems import Problems
from popc.frontend.walk import node_name
from popc_runtime.ground.frozen import frozen

__all__ = [
    "IGNORED",
    "READ",
    "Ignored",
    "attribute_problems",
    "may_read",
    "record_attributes",
]

_PREFIX: Final = "__"  # of annotations, and of what PopART writes for itself


@frozen
class Ignored:
    """The reason why an attribute need not be read; if ``only`` is given, as long as it is that."""

    why: str
    only: object = None


_GRAPHCORE: Final = "ai.graphcore"
_MICROSOFT: Final = "com.microsoft"
_GROUP: Final = ("replica_group_size", "replication_factor")
_RECURRENT: Final = (
    "activation", "output_full_sequence", "recurrent_activation", "reset_after", "time_major",
)  # fmt: skip
_GROUP_NORM: Final = ("channels_axis", "epsilon", "num_groups", "strided_channel_grouping")
_SCATTER: Final = ("axis", "axis_size", "enable_index_broadcast", "group_size", "reduction")

_READ_GRAPHCORE: Final[dict[str, tuple[str, ...]]] = {
    "AUGRU": _RECURRENT,
    "Abort": ("title",),
    "AllGather": _GROUP,
    "AllToAll": (*_GROUP, "concat_dimension", "split_dimension"),
    "BatchNormalization": ("epsilon", "momentum"),
    "Bucketize": ("right",),
    "Call": ("callee",),
    "CastThenPow2Scale": ("to",),
    "CrossReplicaSum": (*_GROUP, "op"),
    "Ctc": ("blank", "outDataType", "reduction", "zeroInfinity"),
    "CtcBeamSearchDecoder": ("beam_width", "blank", "top_paths"),
    "DepthToSpace": ("blocksize", "mode"),
    "DynamicAdd": ("axes", "sizes"),
    "DynamicGRU": _RECURRENT,
    "DynamicSlice": ("axes", "noOverlap", "sizes"),
    "DynamicUpdate": ("axes", "noOverlap", "sizes"),
    "DynamicZero": ("axes", "sizes"),
    "EmbeddingLookup": ("serialization_factor",),
    "FixedWidthBins": ("n_bins",),
    "GRU": _RECURRENT,
    "GroupNormalization": _GROUP_NORM,
    "GroupedGather": ("axis", "group_size"),
    "GroupedScatterReduce": _SCATTER,
    "HardSigmoid": ("alpha", "beta"),
    "Histogram": ("absoluteOfInput", "levels"),
    "HistogramUpdate": ("absoluteOfInput", "levels"),
    "HostCall": ("function", "gradient", "types"),
    "IdentityLoss": ("reduction",),
    "IncrementMod": ("increment", "modulus"),
    "Init": ("data_type", "shape"),
    "InstanceNormalization": ("channels_axis", "epsilon", "strided_channel_grouping"),
    "L1": ("lambda", "reduction"),
    "LSTM": _RECURRENT,
    "LayerNormalization": ("channels_axis", "epsilon", "strided_channel_grouping"),
    "MultiConv": (
        "dilations", "inDilations", "numConvs", "outPads", "pads", "partialsTypes", "strides",
    ),
    "Nll": ("ignoreIndex", "inputIsLogProbability", "reduction"),
    "NormalizeImage": ("scale",),
    "PackedDataBlock": ("callback", "callbackBatchSize", "maxSequenceLengths", "resultSize"),
    "Pow2ScaleThenCast": ("saturate", "to"),
    "PrintTensor": (
        *("closeBracket", "digits", "edgeItems", "floatFormat", "maxLineWidth", "openBracket"),
        *("print_gradient", "separator", "summariseThreshold", "title"),
    ),
    "ReduceMedian": ("axes", "keepdims"),
    "ReduceScatter": (*_GROUP, "op"),
    "ReplicatedAllGather": _GROUP,
    "ReplicatedAllReduce": (*_GROUP, "op"),
    "ReplicatedBroadcast": (*_GROUP, "root"),
    "ReplicatedReduceScatter": (*_GROUP, "op"),
    "Reshape": ("shape",),
    "Resize": (
        "antialias", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "mode",
        "nearest_mode",
    ),
    "Reverse": ("dimensions",),
    "Scale": ("scale",),
    "ScaledAdd": ("scale0", "scale1"),
    "ScatterReduce": _SCATTER,
    "SequenceSlice": ("zeroUnused",),
    "SequenceSlicePack": ("zeroUnused",),
    "SequenceSliceUnpack": ("totalElements",),
    "SerializedMatMul": (
        "serialization_dimension", "serialization_factor", "transpose_a", "transpose_b",
    ),
    "ShapedDropout": ("ratio", "seed", "shape"),
    "Slice": ("axes", "ends", "starts"),
    "Sort": ("axis", "descending"),
    "SplineBasis": ("degree",),
    "Subsample": ("strides",),
    "Swish": ("alpha",),
    "Zeros": ("dtype", "shape"),
    "ZerosLike": ("dtype",),
}  # fmt: skip


# What rules read of operators that the standard does not define; those that are missing have none.
READ: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "": {"SimplifiedLayerNormalization": ("axis", "epsilon")},
    _GRAPHCORE: _READ_GRAPHCORE,
    _MICROSOFT: READ_MICROSOFT,
    f"{_MICROSOFT}.nchwc": READ_NCHWC,
}

_ANY_NODE: Final = {
    "consumed_inputs": Ignored(
        "says which operands may be overwritten; the memory planner decides that"
    ),
}
_DISTANT: Final = Ignored("concerns powers of two in 8 bits only, which popc refuses")
_WIDE: Final = Ignored("popc computes in float32 or wider, and rounds once at the end")
_HIDDEN: Final = Ignored("follows from the shape of the weights")
_ALL_STEPS: Final = Ignored("old opsets: the model names the results that it uses")
_LAYOUT: Final = Ignored("concerns work and memory on the chip, not results")
_HITS: Final = Ignored("how often nodes were passed in training changes no result")
_LISTED_HITS: Final = {"nodes_hitrates": _HITS, "nodes_hitrates_as_tensor": _HITS}
_PACKED: Final = Ignored("each token has its position, whatever sequence it is of")
_SHARED: Final = Ignored("concerns buffers of the host; popc allocates its own")

_ENCODED: Final = Ignored("belongs to decoders behind an encoder, which the rule refuses")

IGNORED: Final[Mapping[tuple[str, str], Mapping[str, Ignored]]] = {
    ("", "Attention"): {"softmax_precision": _WIDE},
    ("", "Cast"): {"round_mode": _DISTANT},
    ("", "CastLike"): {"round_mode": _DISTANT},
    ("", "GRU"): {"hidden_size": _HIDDEN, "output_sequence": _ALL_STEPS},
    ("", "Gemm"): {"broadcast": Ignored("before opset 7: C broadcasts whenever its shape does")},
    ("", "GroupNormalization"): {"stash_type": _WIDE},
    ("", "LSTM"): {"hidden_size": _HIDDEN, "output_sequence": _ALL_STEPS},
    ("", "Optional"): {"type": Ignored("is that of the operand; an empty one has none")},
    ("", "QuantizeLinear"): {"precision": _WIDE},
    ("", "RMSNormalization"): {"stash_type": _WIDE},
    ("", "RNN"): {"hidden_size": _HIDDEN, "output_sequence": _ALL_STEPS},
    ("", "SimplifiedLayerNormalization"): {"stash_type": _WIDE},
    ("", "TopK"): {"sorted": Ignored("results are sorted in any case; else any order is right")},
    ("ai.onnx.ml", "LinearClassifier"): {
        "multi_class": Ignored("post_transform alone says what becomes of scores")
    },
    ("ai.onnx.ml", "SVMRegressor"): {
        "post_transform": Ignored("onnxruntime leaves the scores of regressors as they are, too")
    },
    ("ai.onnx.ml", "TreeEnsemble"): {"nodes_hitrates": _HITS},
    ("ai.onnx.ml", "TreeEnsembleClassifier"): _LISTED_HITS,
    ("ai.onnx.ml", "TreeEnsembleRegressor"): _LISTED_HITS,
    (_GRAPHCORE, "BatchNormalization"): {
        "unbiased_variance": Ignored("the running variance divides by N - 1 in any case", 0)
    },
    (_GRAPHCORE, "Init"): {
        "batch_axis": Ignored("is for models cut into batches; popc finds the batch axis itself"),
        "init_type": Ignored("contents are zeros unless they are given"),
    },
    (_GRAPHCORE, "MultiConv"): dict.fromkeys(
        (
            "availableMemoryProportions", "cycleBackOff", "enableConvDithering",
            "perConvReservedTiles", "planType",
        ),
        _LAYOUT,
    ),
    (_GRAPHCORE, "ScatterReduce"): {"available_memory_proportion": _LAYOUT},
    (_GRAPHCORE, "Sort"): {"stable": Ignored("sorting is stable in any case")},
    (_GRAPHCORE, "TensorRemap"): {"remap_type": _LAYOUT},
    (_MICROSOFT, "Attention"): {
        "past_present_share_buffer": _SHARED,
        "rotary_embedding_dim": Ignored("belongs to do_rotary, which the rule refuses"),
    },
    (_MICROSOFT, "DecoderMaskedMultiHeadAttention"): {
        "output_qk": Ignored("scores are computed if the model names them"),
    },
    (_MICROSOFT, "EmbedLayerNormalization"): {
        "mask_index_type": Ignored("the result is how many elements of the mask are set, always")
    },
    (_MICROSOFT, "GreedySearch"): {
        "decoder_start_token_id": _ENCODED,
        "encoder": _ENCODED,
    },
    (_MICROSOFT, "LinearAttention"): {
        "chunk_size": Ignored("how many tokens are computed at once changes no result")
    },
    (_MICROSOFT, "MatMulBnb4"): {
        "training_mode": Ignored("results are the same, and gradients follow from them"),
    },
    (_MICROSOFT, "MatMulNBits"): {
        "weight_prepacked": Ignored("weights in the order of another runtime are unreadable", 0),
    },
    (_MICROSOFT, "QAttention"): {"past_present_share_buffer": _SHARED},
    (_MICROSOFT, "QMoE"): {
        "accuracy_level": _WIDE,
        "weights_prepacked": Ignored("weights in the order of another runtime are unreadable", -1),
    },
    (_MICROSOFT, "MRotaryEmbedding"): {"is_packed_batching": _PACKED},
    (_MICROSOFT, "RotaryEmbedding"): {
        "is_packed_batching": _PACKED,
        "scale": Ignored("the kernel of onnxruntime for CPUs does not read it"),
    },
    (_MICROSOFT, "WhisperBeamSearch"): {
        **dict.fromkeys(
            (
                "beginning_timestamp_token_id", "no_speech_token_id", "no_timestamps_token_id",
                "start_of_lm_token_id", "transcribe_token_id", "translate_token_id",
            ),
            Ignored("belongs to logits_processor or non_speech_probs, which the rule refuses"),
        ),
        "decoder_output_cross_qk": Ignored("scores of attention are not returned", 0),
        "init_decoder": Ignored("the encoder runs the first step of such a decoder"),
        "model_type": Ignored("the operator is for one type of models", 2),
    },
}  # fmt: skip


@cache
def may_read(domain: str, op_type: str, name: str) -> bool:
    """True if the rule of an operator may read an attribute, as far as this table knows."""
    if name.startswith(_PREFIX) or domain not in READ:
        return True
    return (domain == "" and op_type not in READ[""]) or name in READ[domain].get(op_type, ())


def attribute_problems(
    node: onnx.NodeProto, version: int, functions: FunctionTable
) -> Iterator[str]:
    """Problems with the attributes of a node: those that nothing would read."""
    names = [entry.name for entry in node.attribute if not entry.name.startswith(_PREFIX)]
    if not names:
        return
    domain = default_domain_name(node.domain)
    local = functions.local(domain, node.op_type, node.overload)
    if local is None and custom_operator(node, domain, version) is not None:
        return
    known = _known(domain, node.op_type, version) if local is None else frozenset(local.attributes)
    if known is None:
        return
    ignored = {**_ANY_NODE, **(IGNORED.get((domain, node.op_type), {}) if local is None else {})}
    for attribute in node.attribute:
        name = attribute.name
        if name.startswith(_PREFIX):
            continue
        if name in ignored:
            yield from _refusals(attribute, ignored[name])
        elif name not in known:
            yield _unknown(name, known | (ignored.keys() - _ANY_NODE.keys()))


def record_attributes(
    node: onnx.NodeProto, opsets: Mapping[str, int], functions: FunctionTable, problems: Problems
) -> None:
    """Record `attribute_problems` of a node."""
    domain = default_domain_name(node.domain)
    version = opsets.get(domain, 1)
    for problem in attribute_problems(node, version, functions):
        what = f"{operator_name(node.op_type, domain, version)}: {problem}"
        problems.unsupported[what].append(node_name(node))


@cache
def _known(domain: str, op_type: str, version: int) -> frozenset[str] | None:
    """The attributes of an operator; ``None`` if nobody says which it has."""
    own = READ.get(domain, {}).get(op_type)
    if own is not None:
        return frozenset(own)
    definition = find_definition(op_type, domain, version)
    if definition is not None:
        return definition.attributes
    return frozenset() if domain in (_GRAPHCORE, _MICROSOFT) else None


def _refusals(attribute: onnx.AttributeProto, ignored: Ignored) -> Iterator[str]:
    if ignored.only is None or attribute.ref_attr_name:
        return
    from onnx import helper

    value: Any = helper.get_attribute_value(attribute)
    value = value.decode(errors="replace") if isinstance(value, bytes) else value
    if value != ignored.only:
        yield f"attribute {attribute.name!r} must be {ignored.only!r} ({ignored.why})"


def _unknown(name: str, known: frozenset[str]) -> str:
    listed = f"known are {', '.join(sorted(known))}" if known else "the operator has none"
    return f"attribute {shown(name)!r} is unknown ({listed}{did_you_mean(name, known)})"
