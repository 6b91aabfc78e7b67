"""Small networks of the package transformers with random weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import nn

from tools.network_exports.case import Case

__all__ = [
    "MODERN",
    "TEXT",
    "a_mask",
    "decoder",
    "hub_case",
    "picture",
    "some_floats",
    "some_words",
    "sound",
    "text",
    "translator",
]

TEXT: Final = {
    "vocab_size": 256,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "max_position_embeddings": 130,
}
MODERN: Final = {
    **TEXT,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
PICTURE: Final = {
    "image_size": 64,
    "patch_size": 8,
    "hidden_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 192,
}
SOUND: Final = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "conv_dim": (32, 32, 32),
    "conv_stride": (5, 4, 2),
    "conv_kernel": (10, 8, 4),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "vocab_size": 32,
}


class _First(nn.Module):
    """A model whose arguments have names, and the first of its results."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], fixed: Mapping[str, Any]) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, names, dict(fixed)

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        named = dict(zip(self.names, values, strict=True))
        return self.model(**named, **self.fixed, return_dict=False)[0]


def _model(
    family: str,
    head: str,
    settings: Mapping[str, Any],
    names: tuple[str, ...],
    fixed: Mapping[str, Any],
) -> nn.Module:
    import transformers

    config = getattr(transformers, f"{family}Config")(**settings)
    return _First(getattr(transformers, f"{family}{head}")(config).eval(), names, fixed)


def hub_case(
    family: str,
    head: str,
    settings: Mapping[str, Any],
    inputs: Mapping[str, Callable[[], torch.Tensor]],
    **fixed: Any,
) -> Case:
    names = tuple(inputs)
    return Case(
        lambda: _model(family, head, settings, names, fixed),
        lambda: tuple(make() for make in inputs.values()),
    )


def some_words(rows: int = 1, steps: int = 32, count: int = 256) -> Callable[[], torch.Tensor]:
    return lambda: torch.randint(3, count, (rows, steps))


def a_mask(rows: int = 1, steps: int = 32, seen: int = 24) -> Callable[[], torch.Tensor]:
    return lambda: (torch.arange(steps) < seen).long().expand(rows, steps).contiguous()


def some_floats(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(*shape)


def text(family: str, head: str = "Model", base: Mapping[str, Any] = TEXT, **settings: Any) -> Case:
    return hub_case(
        family, head, {**base, **settings}, {"input_ids": some_words(), "attention_mask": a_mask()}
    )


def decoder(family: str, base: Mapping[str, Any] = MODERN, **settings: Any) -> Case:
    return hub_case(
        family,
        "ForCausalLM",
        {**base, **settings},
        {"input_ids": some_words(), "attention_mask": a_mask(seen=32)},
        use_cache=False,
    )


def picture(
    family: str,
    head: str = "ForImageClassification",
    base: Mapping[str, Any] = PICTURE,
    size: int = 64,
    **settings: Any,
) -> Case:
    return hub_case(
        family, head, {**base, **settings}, {"pixel_values": some_floats(1, 3, size, size)}
    )


def sound(family: str, head: str = "Model", **settings: Any) -> Case:
    return hub_case(family, head, {**SOUND, **settings}, {"input_values": some_floats(1, 4000)})


def translator(family: str, **settings: Any) -> Case:
    base = {"vocab_size": 256, "d_model": 64}
    for half in ("encoder", "decoder"):
        base |= {f"{half}_layers": 1, f"{half}_ffn_dim": 128, f"{half}_attention_heads": 4}
    inputs = {"input_ids": some_words(), "decoder_input_ids": some_words(steps=10)}
    return hub_case(family, "Model", {**base, **settings}, inputs, use_cache=False)
