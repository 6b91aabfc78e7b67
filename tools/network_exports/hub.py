"""Networks of the package transformers, by name."""

from __future__ import annotations

from typing import Final

from tools.network_exports.case import Case
from tools.network_exports.hub_parts import (
    TEXT,
    hub_case,
    picture,
    some_floats,
    some_words,
    sound,
    translator,
)
from tools.network_exports.hub_words import WORDS

__all__ = ["HUB"]

_IMAGE: Final = {"pixel_values": some_floats(1, 3, 64, 64)}
_DETR: Final = {
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "d_model": 64,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "num_queries": 12,
}
_RESNET: Final = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 24, 32],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
    "out_indices": [4],
}

_PICTURES: Final = {
    "vit": picture("ViT"),
    "deit": picture("DeiT"),
    "beit": picture("Beit", use_relative_position_bias=True),
    "dinov2": picture("Dinov2", hidden_size=96),
    "yolos": picture("Yolos", "ForObjectDetection", num_detection_tokens=10, image_size=[64, 64]),
    "swin": picture(
        "Swin",
        base={},
        image_size=64,
        patch_size=4,
        embed_dim=32,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
    ),
    "swinv2": picture(
        "Swinv2",
        base={},
        image_size=64,
        patch_size=4,
        embed_dim=32,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
    ),
    "convnext_hub": picture(
        "ConvNext", base={}, hidden_sizes=[24, 48, 64, 96], depths=[1, 1, 2, 1]
    ),
    "convnextv2": picture(
        "ConvNextV2", base={}, hidden_sizes=[24, 48, 64, 96], depths=[1, 1, 2, 1]
    ),
    "resnet_hub": picture(
        "ResNet", base={}, embedding_size=32, hidden_sizes=[32, 64, 96, 128], depths=[1, 1, 1, 1]
    ),
    "regnet": picture(
        "RegNet",
        base={},
        embedding_size=32,
        hidden_sizes=[32, 64, 96, 128],
        depths=[1, 1, 1, 1],
        groups_width=16,
    ),
    "mobilenet_v1_hub": picture("MobileNetV1", base={}, depth_multiplier=0.25),
    "mobilenet_v2_hub": picture("MobileNetV2", base={}, depth_multiplier=0.35),
    "efficientnet_hub": picture(
        "EfficientNet", base={}, width_coefficient=0.25, depth_coefficient=0.3, hidden_dim=320
    ),
    "poolformer": picture(
        "PoolFormer", base={}, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1]
    ),
    "segformer": picture(
        "Segformer",
        "ForSemanticSegmentation",
        base={},
        hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1],
        decoder_hidden_size=64,
    ),
    "mobilevit": picture(
        "MobileViT",
        base={},
        hidden_sizes=[48, 64, 80],
        neck_hidden_sizes=[16, 16, 24, 32, 48, 64, 96],
        image_size=64,
    ),
    "levit": picture(
        "Levit",
        base={},
        image_size=64,
        hidden_sizes=[64, 96, 128],
        num_attention_heads=[2, 3, 4],
        depths=[1, 1, 1],
        key_dim=[16, 16, 16],
    ),
    "pvt": picture(
        "Pvt",
        base={},
        image_size=64,
        hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 3, 4],
    ),
    "focalnet": picture("FocalNet", base={}, image_size=64, embed_dim=24, depths=[1, 1, 1, 1]),
    "bit": picture(
        "Bit",
        base={},
        embedding_size=32,
        hidden_sizes=[32, 64, 96, 128],
        depths=[1, 1, 1, 1],
        num_groups=8,
    ),
    "clip_text": hub_case(
        "CLIPText",
        "Model",
        {**TEXT, "max_position_embeddings": 64, "eos_token_id": 2},
        {"input_ids": some_words()},
    ),
    "clip_vision": picture("CLIPVision", "Model"),
    "siglip": picture("SiglipVision", "Model"),
    "vitmae": picture("ViTMSN", "Model"),
    "detr_like": hub_case("ConditionalDetr", "ForObjectDetection", _DETR, _IMAGE),
    "detr": hub_case("Detr", "ForObjectDetection", {**_DETR, "backbone_config": _RESNET}, _IMAGE),
    "rt_detr": hub_case(
        "RTDetr",
        "ForObjectDetection",
        {
            **{name: size for name, size in _DETR.items() if "backbone" not in name},
            "backbone_config": {
                **_RESNET,
                "model_type": "rt_detr_resnet",
                "out_indices": [2, 3, 4],
            },
            "encoder_hidden_dim": 64,
            "encoder_in_channels": [16, 24, 32],
            "decoder_in_channels": [64, 64, 64],
        },
        _IMAGE,
    ),
}

_OTHERS: Final = {
    "wav2vec2": sound("Wav2Vec2"),
    "wav2vec2_ctc": sound("Wav2Vec2", "ForCTC"),
    "hubert": sound("Hubert"),
    "wavlm": sound("WavLM", num_buckets=16, max_bucket_distance=32),
    "sew": sound("SEW", squeeze_factor=2),
    "whisper_encoder": hub_case(
        "Whisper",
        "ForAudioClassification",
        {
            "d_model": 64,
            "encoder_layers": 2,
            "encoder_attention_heads": 4,
            "encoder_ffn_dim": 128,
            "max_source_positions": 50,
            "num_mel_bins": 80,
            "decoder_layers": 1,
            "decoder_attention_heads": 4,
        },
        {"input_features": some_floats(1, 80, 100)},
    ),
    "audio_spectrum": hub_case(
        "AST",
        "ForAudioClassification",
        {
            "hidden_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 192,
            "max_length": 64,
            "num_mel_bins": 32,
        },
        {"input_values": some_floats(1, 64, 32)},
    ),
    "bart": translator("Bart", max_position_embeddings=64),
    "marian": translator(
        "Marian", max_position_embeddings=64, pad_token_id=0, decoder_start_token_id=0
    ),
    "t5": hub_case(
        "T5",
        "Model",
        {
            "vocab_size": 256,
            "d_model": 64,
            "d_kv": 16,
            "d_ff": 128,
            "num_layers": 1,
            "num_heads": 4,
        },
        {"input_ids": some_words(), "decoder_input_ids": some_words(steps=10)},
        use_cache=False,
    ),
    "m2m": translator("M2M100"),
    "vits": hub_case(
        "Vits",
        "Model",
        {
            "vocab_size": 40,
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "ffn_dim": 64,
            "flow_size": 32,
            "spectrogram_bins": 33,
            "posterior_encoder_num_wavenet_layers": 2,
            "prior_encoder_num_flows": 2,
            "upsample_initial_channel": 32,
            "upsample_rates": [4, 4],
            "upsample_kernel_sizes": [8, 8],
        },
        {"input_ids": some_words(steps=12, count=40)},
    ),
    "patch_series": hub_case(
        "PatchTST",
        "ForPrediction",
        {
            "num_input_channels": 3,
            "context_length": 64,
            "patch_length": 8,
            "patch_stride": 8,
            "d_model": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "ffn_dim": 64,
            "prediction_length": 8,
        },
        {"past_values": some_floats(1, 64, 3)},
    ),
    "decision": hub_case(
        "DecisionTransformer",
        "GPT2Model",
        {"hidden_size": 64, "n_layer": 1, "n_head": 2, "vocab_size": 8},
        {"inputs_embeds": some_floats(1, 12, 64)},
        use_cache=False,
    ),
}

HUB: Final[dict[str, Case]] = {**WORDS, **_PICTURES, **_OTHERS}
"""Each with the names of its arguments and what they are."""
