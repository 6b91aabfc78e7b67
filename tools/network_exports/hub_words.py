"""Encoders and decoders of words of the package transformers, by name."""

from __future__ import annotations

from typing import Final

from tools.network_exports.case import Case
from tools.network_exports.hub_parts import (
    MODERN,
    TEXT,
    a_mask,
    decoder,
    hub_case,
    some_words,
    text,
)

__all__ = ["WORDS"]

_ENCODERS: Final = {
    "bert": text("Bert"),
    "bert_tokens": text("Bert", "ForTokenClassification"),
    "bert_answers": text("Bert", "ForQuestionAnswering"),
    "roberta": text("Roberta"),
    "camembert": text("Camembert", "ForMaskedLM"),
    "electra": text("Electra", "ForPreTraining", embedding_size=64),
    "albert": text("Albert", embedding_size=64),
    "distilbert": hub_case(
        "DistilBert",
        "ForSequenceClassification",
        {
            "vocab_size": 256,
            "dim": 128,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 256,
            "max_position_embeddings": 130,
        },
        {"input_ids": some_words(), "attention_mask": a_mask()},
    ),
    "mobilebert": text(
        "MobileBert", embedding_size=64, intra_bottleneck_size=64, num_hidden_layers=2
    ),
    "squeezebert": text(
        "SqueezeBert",
        embedding_size=128,
        q_groups=2,
        k_groups=2,
        v_groups=2,
        post_attention_groups=1,
        intermediate_groups=2,
        output_groups=2,
    ),
    "deberta": text(
        "DebertaV2", relative_attention=True, position_buckets=16, pos_att_type=["p2c", "c2p"]
    ),
    "mpnet": text("MPNet"),
    "funnel": hub_case(
        "Funnel",
        "Model",
        {
            "vocab_size": 256,
            "block_sizes": [1, 1],
            "d_model": 64,
            "n_head": 4,
            "d_head": 16,
            "d_inner": 128,
        },
        {"input_ids": some_words()},
    ),
    "fnet": hub_case(
        "FNet", "Model", {**TEXT, "tpu_short_seq_length": 32}, {"input_ids": some_words()}
    ),
    "roformer": text("RoFormer", embedding_size=128),
    "convbert": text("ConvBert", embedding_size=128, head_ratio=2),
    "xlm_roberta": text("XLMRoberta", "ForSequenceClassification"),
    "modernbert": text("ModernBert", base=MODERN, local_attention=8, num_hidden_layers=3),
    "nystrom": text("Nystromformer", num_landmarks=8, segment_means_seq_len=32),
    "layoutlm": text("LayoutLM"),
    "canine": text(
        "Canine", max_position_embeddings=256, local_transformer_stride=16, num_hidden_layers=1
    ),
    "t5_encoder": hub_case(
        "T5",
        "EncoderModel",
        {
            "vocab_size": 256,
            "d_model": 128,
            "d_kv": 32,
            "d_ff": 256,
            "num_layers": 2,
            "num_heads": 4,
        },
        {"input_ids": some_words(), "attention_mask": a_mask()},
    ),
}

_DECODERS: Final = {
    "gpt2": hub_case(
        "GPT2",
        "LMHeadModel",
        {"vocab_size": 256, "n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 130},
        {"input_ids": some_words()},
        use_cache=False,
    ),
    "gpt_neo": hub_case(
        "GPTNeo",
        "ForCausalLM",
        {
            "vocab_size": 256,
            "hidden_size": 128,
            "num_layers": 2,
            "attention_types": [[["global", "local"], 1]],
            "num_heads": 4,
            "window_size": 16,
            "max_position_embeddings": 130,
        },
        {"input_ids": some_words()},
        use_cache=False,
    ),
    "gpt_neox": decoder("GPTNeoX", base=TEXT),
    "gptj": hub_case(
        "GPTJ",
        "ForCausalLM",
        {
            "vocab_size": 256,
            "n_embd": 128,
            "n_layer": 2,
            "n_head": 4,
            "rotary_dim": 16,
            "n_positions": 130,
        },
        {"input_ids": some_words()},
        use_cache=False,
    ),
    "opt": hub_case(
        "OPT",
        "ForCausalLM",
        {
            "vocab_size": 256,
            "hidden_size": 128,
            "num_hidden_layers": 2,
            "ffn_dim": 256,
            "num_attention_heads": 4,
            "max_position_embeddings": 130,
            "word_embed_proj_dim": 128,
        },
        {"input_ids": some_words()},
        use_cache=False,
    ),
    "bloom": hub_case(
        "Bloom",
        "ForCausalLM",
        {"vocab_size": 256, "hidden_size": 128, "n_layer": 2, "n_head": 4},
        {"input_ids": some_words()},
        use_cache=False,
    ),
    "llama": decoder("Llama"),
    "mistral": decoder("Mistral", sliding_window=16),
    "qwen2": decoder("Qwen2"),
    "qwen3": decoder("Qwen3"),
    "gemma": decoder("Gemma"),
    "gemma2": decoder("Gemma2", sliding_window=16),
    "phi": decoder("Phi"),
    "phi3": decoder("Phi3"),
    "falcon": decoder("Falcon", base=TEXT, alibi=False, new_decoder_architecture=False),
    "stablelm": decoder("StableLm"),
    "olmo": decoder("Olmo"),
    "cohere": decoder("Cohere"),
    "starcoder2": decoder("Starcoder2"),
    "mixtral": decoder("Mixtral", num_local_experts=4, num_experts_per_tok=2),
    "granite": decoder("Granite"),
    "mamba": hub_case(
        "Mamba",
        "ForCausalLM",
        {"vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8},
        {"input_ids": some_words(steps=12)},
        use_cache=False,
    ),
    "rwkv": hub_case(
        "Rwkv",
        "ForCausalLM",
        {"vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "context_length": 32},
        {"input_ids": some_words(steps=8)},
        use_cache=False,
    ),
}


WORDS: Final[dict[str, Case]] = {**_ENCODERS, **_DECODERS}
"""Each with the names of its arguments and what they are."""
