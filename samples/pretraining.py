"""Networks as the vendor's recipes train them: with heads, dropout, and places in a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import onnx
from onnx import helper

from samples.image_training import efficientnet_b4, resnext101, vit_base_dropped
from samples.network_builder import NetworkBuilder
from samples.published import joint_attention, resnet50

__all__ = ["TRAINED_NETWORKS", "bert_masked"]

_VOCABULARY = 30_400


def bert_masked(
    dtype: str = "float32",
    *,
    size: int,
    heads: int,
    length: int,
    masked: int,
    layers: Sequence[int],
    first: int = 0,
) -> onnx.ModelProto:
    """BERT that says which tokens were masked, placed on chips.

    The masked tokens are the first of a row, as PopART's example sorts them.  The table of words is
    that of the last product as well, so both are on chip 0.

    Args:
        dtype: Of weights and activations.
        size: Of hidden states.
        heads: Of attention.
        length: Tokens of a row.
        masked: How many of them are asked for.
        layers: How many are on each chip.
        first: The chip of the first layer.

    Returns:
        Tokens, token types and mask [batch, length] -> logits [batch masked, 30400].
    """
    b = NetworkBuilder("bert_masked", dtype, training=True)
    b.place = (0, 0)
    ratio, training = b.full("dropped", value=0.1), b.truth("training")

    def dropout(x: str) -> str:
        return b("Dropout", x, ratio, training)

    x = dropout(b.layer_norm(_embeddings(b, size, length), "embedding.norm", size))
    bias = _scores_of_padding(b)
    layer = 0
    for chip, count in enumerate(layers, first):
        b.place = (chip, chip)
        for _ in range(count):
            name = f"layer{layer}"
            y = joint_attention(b, x, name, size, heads, length, bias, biased=False)
            x = b.layer_norm(b("Add", x, dropout(y)), f"{name}.norm1", size)
            y = b("Gelu", b.linear(x, f"{name}.up", size, 4 * size))
            y = dropout(b.linear(y, f"{name}.down", 4 * size, size))
            x = b.layer_norm(b("Add", x, y), f"{name}.norm2", size)
            layer += 1
    b.place = (0, first + len(layers))
    _words(b, x, size, masked)
    rows = [
        helper.make_tensor_value_info(name, onnx.TensorProto.INT32, ["batch", length])
        for name in ("tokens", "types_of_tokens", "mask")
    ]
    return b.model(rows, [b.floats("logits", "rows", _VOCABULARY)])


def _embeddings(b: NetworkBuilder, size: int, length: int) -> str:
    words = b("Gather", b.weight("words", _VOCABULARY, size, scale=0.02), "tokens")
    types = b("Gather", b.weight("types", 2, size, scale=0.02), "types_of_tokens")
    return b("Add", b("Add", words, types), b.weight("positions", length, size, scale=0.02))


def _scores_of_padding(b: NetworkBuilder) -> str:
    visible = b("Cast", "mask", to=helper.np_dtype_to_tensor_dtype(b.dtype))
    hidden = b("Sub", b.full("one", value=1.0), visible)
    bias = b("Mul", hidden, b.full("minus_much", value=-10_000.0))
    return b("Unsqueeze", bias, b.integers("mask_axes", 1, 2))


def _words(b: NetworkBuilder, x: str, size: int, masked: int) -> None:
    bounds = [b.integers(name, value) for name, value in (("from", 0), ("to", masked), ("of", 1))]
    x = b.linear(b("Slice", x, *bounds), "masked.dense", size, size)
    x = b.layer_norm(b("Gelu", x), "masked.norm", size)
    x = b("MatMul", x, b("Transpose", "words", perm=[1, 0]), name="masked.product")
    x = b("Add", x, b.full("masked.bias", _VOCABULARY))
    b("Reshape", x, b.integers("masked.rows", -1, _VOCABULARY), name="logits")


_BASE = partial(bert_masked, size=768, heads=12, layers=[4, 4, 4], first=1)
_LARGE = partial(bert_masked, size=1024, heads=16, layers=[3, 7, 7, 7])

TRAINED_NETWORKS: dict[str, Callable[[str], onnx.ModelProto]] = {
    "resnet50_training": partial(resnet50, training=True),
    "resnext101_training": resnext101,
    "efficientnet_b4_training": efficientnet_b4,
    "vit_base_training": vit_base_dropped,
    "bert_base_masked_128": partial(_BASE, length=128, masked=20),
    "bert_base_masked_512": partial(_BASE, length=512, masked=76),
    "bert_large_masked_128": partial(_LARGE, length=128, masked=20),
    "bert_large_masked_384": partial(_LARGE, length=384, masked=56),
}
