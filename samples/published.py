"""Well-known networks as ONNX models, from their standard definitions, with arbitrary weights.

    python -m samples.published resnet50 resnet50.onnx --type float16

ResNet-50 (v1.5: strides in the 3 by 3 convolutions), MobileNetV2, BERT, and vision transformers.
The batch is a symbolic dimension; weights are repeated noise, for what depends on shapes and not on
values.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import onnx
from onnx import helper

from samples.network_builder import NetworkBuilder
from samples.shifted_windows import swin_large

__all__ = [
    "NETWORKS",
    "attention_of_heads",
    "bert_answers",
    "bert_base",
    "bert_large",
    "bert_large_joint",
    "clip_text",
    "joint_attention",
    "mobilenet_v2",
    "resnet50",
    "vit_base",
    "vit_of",
    "vit_so400m",
]


def resnet50(dtype: str = "float32", *, training: bool = False) -> onnx.ModelProto:
    """image [batch, 3, 224, 224] -> logits [batch, 1000]; for training from bytes, 0 to 255."""
    b = NetworkBuilder("resnet50", dtype, training=training)
    image, x = b.floats("image", "batch", 3, 224, 224), "image"
    if training:
        image, x = b.pixels(224)
    x = b("Relu", _conv(b, x, "stem", 3, 64, 7, 2))
    x = b("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            x = _bottleneck(b, x, f"stage{stage}.{block}", inputs, width, stride)
            inputs = 4 * width
    return b.model([image], [b.classify(x, 2048)])


def _bottleneck(b: NetworkBuilder, x: str, name: str, inputs: int, width: int, stride: int) -> str:
    shortcut = x
    if stride > 1 or inputs != 4 * width:
        shortcut = _conv(b, x, f"{name}.shortcut", inputs, 4 * width, 1, stride)
    y = b("Relu", _conv(b, x, f"{name}.conv1", inputs, width, 1))
    y = b("Relu", _conv(b, y, f"{name}.conv2", width, width, 3, stride))
    y = _conv(b, y, f"{name}.conv3", width, 4 * width, 1)
    return b("Relu", b("Add", y, shortcut), name=f"{name}.out")


def mobilenet_v2(dtype: str = "float32") -> onnx.ModelProto:
    """image [batch, 3, 224, 224] -> logits [batch, 1000] (Sandler et al. 2018, table 2)."""
    b = NetworkBuilder("mobilenet_v2", dtype)
    six = b.full("zero"), b.full("six", value=6.0)
    x = b("Clip", _conv(b, "image", "stem", 3, 32, 3, 2), *six)
    inputs = 32
    for expansion, outputs, blocks, first_stride in _INVERTED_RESIDUALS:
        for block in range(blocks):
            stride = 1 if block else first_stride
            name = f"features{outputs}.{block}"
            x = _inverted_residual(b, x, name, (inputs, expansion, outputs), stride, six)
            inputs = outputs
    x = b("Clip", _conv(b, x, "last", 320, 1280, 1), *six)
    return b.model([b.floats("image", "batch", 3, 224, 224)], [b.classify(x, 1280)])


# Expansion, channels, blocks, stride of the first block.
_INVERTED_RESIDUALS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _inverted_residual(
    b: NetworkBuilder,
    x: str,
    name: str,
    channels: tuple[int, int, int],
    stride: int,
    six: tuple[str, str],
) -> str:
    """Expand, convolve each channel, and project; ``channels``: in, expansion, out."""
    inputs, expansion, outputs = channels
    width, y = inputs * expansion, x
    if expansion > 1:
        y = b("Clip", _conv(b, y, f"{name}.expand", inputs, width, 1), *six)
    y = b("Clip", _conv(b, y, f"{name}.depthwise", width, width, 3, stride, groups=width), *six)
    y = _conv(b, y, f"{name}.project", width, outputs, 1)
    return b("Add", x, y) if stride == 1 and inputs == outputs else y


def _conv(
    b: NetworkBuilder,
    x: str,
    name: str,
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
) -> str:
    """A convolution and its batch normalisation."""
    weight = b.filters(f"{name}.weight", inputs, outputs, kernel, groups)
    pads, strides = [kernel // 2] * 4, [stride, stride]
    y = b("Conv", x, weight, pads=pads, strides=strides, group=groups, name=f"{name}.conv")
    norm = [b.full(f"{name}.{part}", outputs, value=value) for part, value in _NORM.items()]
    if not b.training:
        return b("BatchNormalization", y, *norm, name=f"{name}.norm")
    state = (f"{name}.new_mean", f"{name}.new_variance")
    return b("BatchNormalization", y, *norm, name=f"{name}.norm", state=state, training_mode=1)


_NORM = {"scale": 1.0, "bias": 0.0, "mean": 0.0, "variance": 1.0}


def bert_base(dtype: str = "float32", *, length: int = 128, layers: int = 12) -> onnx.ModelProto:
    """Tokens, token types and mask [batch, length] -> hidden [batch, length, 768]."""
    return _bert(NetworkBuilder("bert_base", dtype), 768, 12, length, layers)


def bert_answers(dtype: str = "float32", *, length: int = 384) -> onnx.ModelProto:
    """The same -> start and end [batch, length]: BERT-base that finds answers, as for SQuAD."""
    return _bert(NetworkBuilder("bert_answers", dtype), 768, 12, length, 12, answers=True)


def bert_large(dtype: str = "float32", *, length: int = 128, layers: int = 24) -> onnx.ModelProto:
    """Tokens, token types and mask [batch, length] -> hidden [batch, length, 1024]."""
    return _bert(NetworkBuilder("bert_large", dtype), 1024, 16, length, layers)


def bert_large_joint(
    dtype: str = "float32", *, length: int = 128, layers: int = 24, norms: int = 2
) -> onnx.ModelProto:
    """The same as PopART has it: one product makes queries, keys and values, without biases.

    ``norms``: normalisations of a layer; with 1, what a second one that is a call has no code for.
    """
    builder = NetworkBuilder("bert_large", dtype)
    attention = partial(joint_attention, biased=False)
    return _bert(builder, 1024, 16, length, layers, attention=attention, norms=norms)


def _bert(
    b: NetworkBuilder,
    size: int,
    heads: int,
    length: int,
    layers: int,
    *,
    attention: Callable[..., str] | None = None,
    norms: int = 2,
    answers: bool = False,
) -> onnx.ModelProto:
    words = b("Gather", b.weight("words", 30_522, size, scale=0.02), "tokens")
    types = b("Gather", b.weight("types", 2, size, scale=0.02), "types_of_tokens")
    x = b("Add", b("Add", words, types), b.weight("positions", length, size, scale=0.02))
    x = b.layer_norm(x, "embedding.norm", size)
    visible = b("Cast", "mask", to=helper.np_dtype_to_tensor_dtype(b.dtype))
    hidden = b("Sub", b.full("one", value=1.0), visible)
    bias = b("Mul", hidden, b.full("minus_much", value=-10_000.0))
    bias = b("Unsqueeze", bias, b.integers("mask_axes", 1, 2))
    for layer in range(layers):
        name = f"layer{layer}"
        y = (attention or attention_of_heads)(b, x, name, size, heads, length, bias)
        x = b.layer_norm(b("Add", x, y), f"{name}.norm1", size)
        y = b("Gelu", b.linear(x, f"{name}.up", size, 4 * size))
        y = b.linear(y, f"{name}.down", 4 * size, size)
        x = b("Add", x, y)
        x = b.layer_norm(x, f"{name}.norm2", size) if norms > 1 else x
    if answers:
        ends = b.linear(x, "answers", size, 2)
        for index, name in enumerate(("start", "end")):
            b("Gather", ends, b.scalar(f"{name}.index", index), axis=-1, name=name)
        outputs = [b.floats(name, "batch", length) for name in ("start", "end")]
    else:
        b("Identity", x, name="hidden")
        outputs = [b.floats("hidden", "batch", length, size)]
    integers = onnx.TensorProto.INT64
    inputs = [
        helper.make_tensor_value_info(name, integers, ["batch", length])
        for name in ("tokens", "types_of_tokens", "mask")
    ]
    return b.model(inputs, outputs)


def vit_base(dtype: str = "float32", *, layers: int = 12) -> onnx.ModelProto:
    """image [batch, 3, 224, 224] -> logits [batch, 1000]: 16 by 16 patches, 197 tokens."""
    return vit_of(NetworkBuilder("vit_base", dtype), layers)


def _kept(x: str) -> str:
    return x


def vit_of(
    b: NetworkBuilder,
    layers: int,
    *,
    dropout: Callable[[str], str] = _kept,
    places: Sequence[tuple[int, int]] = (),
) -> onnx.ModelProto:
    """The same on ``b``; ``dropout`` is where transformers has it, and layers are in ``places``."""
    weight = b.weight("patch.weight", 768, 3, 16, 16, scale=0.03)
    x = b("Conv", "image", weight, b.full("patch.bias", 768), strides=[16, 16], name="patch.conv")
    x = b("Reshape", x, b.integers("patches", 0, 768, 196))
    x = b("Transpose", x, perm=[0, 2, 1])
    batch = b("Shape", x, start=0, end=1)
    token_shape = b("Concat", batch, b.integers("token_shape", 1, 768), axis=0)
    token = b("Expand", b.weight("class_token", 1, 1, 768), token_shape)
    x = b("Add", b("Concat", token, x, axis=1), b.weight("positions", 197, 768, scale=0.02))
    x = dropout(x)
    for layer in range(layers):
        b.place = places[layer] if places else None
        name = f"layer{layer}"
        y = b.layer_norm(x, f"{name}.norm1", 768)
        y = dropout(attention_of_heads(b, y, name, 768, 12, 197, ""))
        x = b("Add", x, y)
        y = b.layer_norm(x, f"{name}.norm2", 768)
        y = b("Gelu", b.linear(y, f"{name}.up", 768, 3072))
        y = dropout(b.linear(y, f"{name}.down", 3072, 768))
        x = b("Add", x, y, name=f"{name}.end")
    x = b.layer_norm(x, "norm", 768)
    x = b("Gather", x, b.integers("first", 0), axis=1)
    x = b("Reshape", x, b.integers("features", 0, 768))
    b("Identity", b.linear(x, "head", 768, 1000), name="logits")
    return b.model([b.floats("image", "batch", 3, 224, 224)], [b.floats("logits", "batch", 1000)])


def vit_so400m(dtype: str = "float32", *, layers: int = 27) -> onnx.ModelProto:
    """image [batch, 3, 378, 378] -> features [batch, 1152]: the image encoder of SigLIP So400m/14.

    Attention of one query, which is a weight, makes one row of the tokens of an image.
    """
    b = NetworkBuilder("vit_so400m", dtype)
    weight = b.weight("patch.weight", 1152, 3, 14, 14, scale=0.03)
    x = b("Conv", "image", weight, b.full("patch.bias", 1152), strides=[14, 14], name="patch.conv")
    x = b("Reshape", x, b.integers("patches", 0, 1152, 729))
    x = b("Transpose", x, perm=[0, 2, 1])
    x = b("Add", x, b.weight("positions", 729, 1152, scale=0.02))
    for layer in range(layers):
        name = f"layer{layer}"
        y = b.layer_norm(x, f"{name}.norm1", 1152)
        x = b("Add", x, joint_attention(b, y, name, 1152, 16, 729))
        y = b.layer_norm(x, f"{name}.norm2", 1152)
        y = b("Gelu", b.linear(y, f"{name}.up", 1152, 4304), approximate="tanh")
        x = b("Add", x, b.linear(y, f"{name}.down", 4304, 1152))
    x = _pooled(b, b.layer_norm(x, "norm", 1152), 1152, 16, 729)
    y = b.linear(b.layer_norm(x, "pool.norm", 1152), "pool.up", 1152, 4304)
    x = b("Add", x, b.linear(b("Gelu", y, approximate="tanh"), "pool.down", 4304, 1152))
    b("Reshape", x, b.integers("features.shape", 0, 1152), name="features")
    return b.model([b.floats("image", "batch", 3, 378, 378)], [b.floats("features", "batch", 1152)])


def _pooled(b: NetworkBuilder, x: str, size: int, heads: int, length: int) -> str:
    """Attention of all heads over rows ``x``, with one query for all images: [batch, 1, size]."""
    split = b.integers("pool.split", 0, length, 2, heads, size // heads)
    joint = b("Reshape", b.linear(x, "pool.joint", size, 2 * size), split)
    joint = b("Transpose", joint, perm=[2, 0, 3, 1, 4])
    k, v = (
        b("Gather", joint, b.scalar(f"pool.{part}", index), axis=0)
        for index, part in enumerate(("key", "value"))
    )
    query = b.weight("pool.query", 1, heads, 1, size // heads, scale=size**-0.5)
    scores = b("MatMul", query, b("Transpose", k, perm=[0, 1, 3, 2]), name="pool.scores")
    mixed = b("MatMul", b("Softmax", scores, axis=-1), v, name="pool.mixed")
    merged = b("Reshape", mixed, b.integers("pool.merge", 0, 1, size))
    return b.linear(merged, "pool.mix", size, size)


def clip_text(dtype: str = "float32") -> onnx.ModelProto:
    """tokens [batch, 77] -> hidden [batch, 77, 768], pooled [batch, 768]: CLIP ViT-L/14's text."""
    b = NetworkBuilder("clip_text", dtype)
    words = b("Gather", b.weight("words", 49_408, 768, scale=0.02), "tokens")
    x = b("Add", words, b.weight("positions", 77, 768, scale=0.02))
    later = b("Trilu", b.full("minus_much", 77, 77, value=-10_000.0), b.scalar("one", 1), upper=1)
    for layer in range(12):
        name = f"layer{layer}"
        y = b.layer_norm(x, f"{name}.norm1", 768)
        x = b("Add", x, attention_of_heads(b, y, name, 768, 12, 77, later))
        y = b.linear(b.layer_norm(x, f"{name}.norm2", 768), f"{name}.up", 768, 3072)
        y = b("Mul", y, b("Sigmoid", b("Mul", y, b.full(f"{name}.quick", value=1.702))))
        x = b("Add", x, b.linear(y, f"{name}.down", 3072, 768))
    b("Identity", b.layer_norm(x, "norm", 768), name="hidden")
    ends = b("Unsqueeze", b("ArgMax", "tokens", axis=1, keepdims=0), b.integers("axis", 1))
    b("GatherND", "hidden", ends, batch_dims=1, name="pooled")
    tokens = helper.make_tensor_value_info("tokens", onnx.TensorProto.INT32, ["batch", 77])
    return b.model(
        [tokens], [b.floats("hidden", "batch", 77, 768), b.floats("pooled", "batch", 768)]
    )


def joint_attention(
    b: NetworkBuilder,
    x: str,
    name: str,
    size: int,
    heads: int,
    length: int,
    bias: str = "",
    *,
    biased: bool = True,
) -> str:
    """Attention of all heads; one product makes queries, keys and values.

    ``bias`` is added to the scores; ``biased``: whether products have biases of their own.
    """
    product = b.linear if biased else b.product
    split = b.integers(f"{name}.split", 0, length, 3, heads, size // heads)
    joint = b("Reshape", product(x, f"{name}.joint", size, 3 * size), split)
    joint = b("Transpose", joint, perm=[2, 0, 3, 1, 4])
    q, k, v = (
        b("Gather", joint, b.scalar(f"{name}.{part}", index), axis=0)
        for index, part in enumerate(("query", "key", "value"))
    )
    scores = b("MatMul", q, b("Transpose", k, perm=[0, 1, 3, 2]), name=f"{name}.scores")
    scores = b("Mul", scores, b.full(f"{name}.scale", value=(size // heads) ** -0.5))
    scores = b("Add", scores, bias) if bias else scores
    mixed = b("MatMul", b("Softmax", scores, axis=-1), v, name=f"{name}.mixed")
    merge = b.integers(f"{name}.merge", 0, length, size)
    merged = b("Reshape", b("Transpose", mixed, perm=[0, 2, 1, 3]), merge)
    return product(merged, f"{name}.mix", size, size)


def attention_of_heads(
    b: NetworkBuilder, x: str, name: str, size: int, heads: int, length: int, bias: str
) -> str:
    """Attention of all heads, with ``bias`` added to the scores."""
    split = b.integers(f"{name}.split", 0, length, heads, size // heads)
    q, k, v = (
        b("Reshape", b.linear(x, f"{name}.{part}", size, size), split)
        for part in ("query", "key", "value")
    )
    turned = b("Transpose", k, perm=[0, 2, 3, 1])
    scores = b("MatMul", b("Transpose", q, perm=[0, 2, 1, 3]), turned)
    scores = b("Mul", scores, b.full(f"{name}.scale", value=(size // heads) ** -0.5))
    scores = b("Add", scores, bias) if bias else scores
    mixed = b("MatMul", b("Softmax", scores, axis=-1), b("Transpose", v, perm=[0, 2, 1, 3]))
    merge = b.integers(f"{name}.merge", 0, length, size)
    joined = b("Reshape", b("Transpose", mixed, perm=[0, 2, 1, 3]), merge)
    return b.linear(joined, f"{name}.mix", size, size)


NETWORKS: dict[str, Callable[[str], onnx.ModelProto]] = {
    "resnet50": resnet50,
    "bert_answers": bert_answers,
    "bert_base": bert_base,
    "bert_large": bert_large,
    "bert_large_joint": bert_large_joint,
    "clip_text": clip_text,
    "mobilenet_v2": mobilenet_v2,
    "swin_large": swin_large,
    "vit_base": vit_base,
    "vit_so400m": vit_so400m,
}


def main() -> None:
    """Write a network to a file."""
    parser = argparse.ArgumentParser(description="Write a well-known network as an ONNX model.")
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--type", choices=["float32", "float16"], default="float32")
    arguments = parser.parse_args()
    onnx.save(NETWORKS[arguments.network](arguments.type), arguments.file)


if __name__ == "__main__":
    main()
