"""The attributes that rules read of operators of com.microsoft, which have no definition here."""

from __future__ import annotations

from typing import Final

__all__ = ["READ_MICROSOFT", "READ_NCHWC"]

_ATTENTION: Final = ("do_rotary", "mask_filter_value", "num_heads", "scale", "unidirectional")
_NORM_OF_GROUPS: Final = ("activation", "channels_last", "epsilon", "groups")
_EXPERTS: Final = (
    "activation_alpha", "activation_beta", "activation_type", "k", "normalize_routing_weights",
    "swiglu_fusion", "swiglu_limit", "use_sparse_mixer",
)  # fmt: skip
_CONV: Final = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_SEARCH: Final = (
    "decoder", "eos_token_id", "no_repeat_ngram_size", "pad_token_id", "vocab_size",
)  # fmt: skip
_FUSED_PRODUCT: Final = ("alpha", "transA", "transB", "transBatchA", "transBatchB")

READ_MICROSOFT: Final[dict[str, tuple[str, ...]]] = {
    "Attention": (*_ATTENTION, "qkv_hidden_sizes"),
    "BeamSearch": (
        *_SEARCH, "decoder_start_token_id", "early_stopping", "encoder", "init_decoder",
        "model_type",
    ),
    "BiasSoftmax": ("axis", "is_inner_broadcast"),
    "BranchwiseRMSNorm": ("epsilon", "num_branches"),
    "CDist": ("metric",),
    "CausalConvWithState": ("activation", "channels_last", "dilation", "ndim", "state_window"),
    "ConvTransposeWithDynamicPads": (
        "auto_pad", "dilations", "group", "kernel_shape", "output_padding", "strides",
    ),
    "CropAndResize": ("extrapolation_value", "mode"),
    "DecoderMaskedMultiHeadAttention": (
        "mask_filter_value", "num_heads", "past_present_share_buffer", "scale",
    ),
    "DequantizeLinear": ("axis",),
    "DynamicQuantizeLSTM": (
        "activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size",
        "input_forget",
    ),
    "EmbedLayerNormalization": ("epsilon",),
    "EngramGate": ("epsilon",),
    "FusedConv": ("activation", "activation_params", *_CONV),
    "FusedGemm": (
        "activation", "activation_alpha", "activation_beta", "activation_gamma", "alpha", "beta",
        "transA", "transB",
    ),
    "FusedMatMul": _FUSED_PRODUCT,
    "GatherBlockQuantized": ("bits", "block_size", "gather_axis", "quantize_axis"),
    "GatedRMSNorm": ("activation", "epsilon"),
    "GreedySearch": (*_SEARCH, "init_decoder", "model_type"),
    "GridSample": ("align_corners", "mode", "padding_mode"),
    "GroupNorm": _NORM_OF_GROUPS,
    "GroupQueryAttention": (
        "causal", "do_rotary", "k_quant_type", "kv_cache_bit_width", "kv_num_heads",
        "local_window_size", "num_heads", "qk_norm_epsilon", "qk_output", "rotary_interleaved",
        "scale", "sliding_window_cache", "smooth_softmax", "softcap", "v_quant_type",
    ),
    "HyperConnectionPostMix": ("num_branches",),
    "HyperConnectionPreMix": ("num_branches", "reduction_scale"),
    "LinearAttention": ("kv_num_heads", "q_num_heads", "scale", "state_window", "update_rule"),
    "MRotaryEmbedding": (
        "interleaved", "mrope_layout", "mrope_section", "num_heads", "rotary_embedding_dim",
        "scale",
    ),
    "MatMulBnb4": ("K", "N", "block_size", "quant_type", "transB"),
    "MatMulNBits": ("K", "N", "accuracy_level", "bits", "block_size"),
    "MoE": _EXPERTS,
    "MultiHeadAttention": ("mask_filter_value", "num_heads", "scale", "unidirectional"),
    "MurmurHash3": ("positive", "seed"),
    "NGramHashMapping": ("max_ngram_size", "n_head_per_ngram", "pad_id", "reset_on_eos"),
    "NGramRepeatBlock": ("ngram_size",),
    "NhwcConv": _CONV,
    "NhwcMaxPool": ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides"),
    "Pad": ("mode",),
    "QAttention": _ATTENTION,
    "QEmbedLayerNormalization": ("epsilon",),
    "QGemm": ("alpha", "transA", "transB"),
    "QLinearAveragePool": (
        "auto_pad", "ceil_mode", "channels_last", "count_include_pad", "kernel_shape", "pads",
        "strides",
    ),
    "QLinearConcat": ("axis",),
    "QLinearConv": ("channels_last", *_CONV),
    "QLinearGlobalAveragePool": ("channels_last",),
    "QLinearLeakyRelu": ("alpha",),
    "QLinearReduceMean": ("axes", "keepdims"),
    "QLinearSoftmax": ("axis", "opset"),
    "QMoE": (
        *_EXPERTS, "block_size", "expert_weight_bits", "fc1_expert_weight_bits",
        "fc2_expert_weight_bits", "fc3_expert_weight_bits", "quant_type",
    ),
    "QuantizeLinear": ("axis",),
    "QuickGelu": ("alpha",),
    "RotaryEmbedding": ("interleaved", "num_heads", "rotary_embedding_dim"),
    "ScaledSiLU": ("alpha",),
    "SkipGroupNorm": _NORM_OF_GROUPS,
    "SkipLayerNormalization": ("epsilon",),
    "SkipSimplifiedLayerNormalization": ("epsilon",),
    "TransposeMatMul": _FUSED_PRODUCT,
    "Trilu": ("upper",),
    "UnfoldTensor": ("dim", "size", "step"),
    "WhisperBeamSearch": (*_SEARCH, "decoder_start_token_id", "early_stopping", "encoder"),
}  # fmt: skip

READ_NCHWC: Final[dict[str, tuple[str, ...]]] = {
    "AveragePool": (
        "auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads",
        "strides",
    ),
    "Conv": ("activation", "activation_params", *_CONV),
    "MaxPool": (
        "auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order", "strides",
    ),
    "ReorderInput": ("block_size", "channels_last"),
    "ReorderOutput": ("channels", "channels_last"),
    "Upsample": ("coordinate_transformation_mode", "mode", "scales"),
}  # fmt: skip
