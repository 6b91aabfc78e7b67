"""Image networks as the vendor's recipes train them: normalised by groups, split into pipelines."""

from __future__ import annotations

from math import ceil
from typing import Any

import onnx

from samples.network_builder import NetworkBuilder
from samples.published import vit_of

__all__ = ["efficientnet_b4", "resnext101", "vit_base_dropped"]


def resnext101(dtype: str = "float32") -> onnx.ModelProto:
    """image [batch, 3, 224, 224] -> logits [batch, 1000]: ResNeXt-101, 32 groups of 4 channels.

    The second chip begins with the fourth block of the third stage.
    """
    b = NetworkBuilder("resnext101", dtype, training=True)
    b.place = (0, 0)
    image, x = b.pixels(224)
    x = b("Relu", _conv(b, x, "stem", (3, 64), 7, 2, norm=32))
    x = b("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inputs = 64
    for stage, blocks in enumerate((3, 4, 23, 3)):
        width, outputs = 128 << stage, 256 << stage
        for block in range(blocks):
            if (stage, block) == (2, 3):
                b.place = (1, 1)
            name, stride = f"stage{stage}.{block}", 2 if stage and not block else 1
            shortcut = x
            if stride > 1 or inputs != outputs:
                shortcut = _conv(b, x, f"{name}.shortcut", (inputs, outputs), 1, stride, norm=32)
            y = b("Relu", _conv(b, x, f"{name}.conv1", (inputs, width), 1, norm=32))
            y = b("Relu", _conv(b, y, f"{name}.conv2", (width, width), 3, stride, 32, norm=32))
            y = _conv(b, y, f"{name}.conv3", (width, outputs), 1, norm=32)
            x = b("Relu", b("Add", y, shortcut), name=f"{name}.out")
            inputs = outputs
    return b.model([image], [b.classify(x, 2048)])


# Kernel, blocks, channels in and out, stride of the first block (Tan and Le 2019, table 1).
_BLOCKS = (
    (3, 1, 32, 16, 1),
    (3, 2, 16, 24, 2),
    (5, 2, 24, 40, 2),
    (3, 3, 40, 80, 2),
    (5, 3, 80, 112, 1),
    (5, 4, 112, 192, 2),
    (3, 1, 192, 320, 1),
)


def efficientnet_b4(dtype: str = "float32") -> onnx.ModelProto:
    """image [batch, 3, 380, 380] -> logits [batch, 1000], as Masters et al. 2021 change it.

    Convolutions are of groups of 16 channels instead of single ones, and widen by 4 instead of 6.
    The second chip begins with the fourth kind of blocks.
    """
    b = NetworkBuilder("efficientnet_b4", dtype, training=True)
    b.place = (0, 0)
    image, x = b.pixels(380)
    x = _swish(b, _conv(b, x, "stem", (3, _width(32)), 3, 2, norm=4))
    for number, (kernel, repeats, first, last, stride) in enumerate(_BLOCKS, 1):
        if number == 4:
            b.place = (1, 1)
        widths = (_width(first), _width(last))
        expansion = 4 if number > 1 else 1
        for block in range(ceil(1.8 * repeats)):
            name = f"block{number}.{block}"
            x = _inverted_residual(b, x, name, widths, expansion, kernel, 1 if block else stride)
            widths = (widths[1], widths[1])
    top = _width(1280)
    x = _swish(b, _conv(b, x, "top", (_width(320), top), 1, norm=4))
    return b.model([image], [b.classify(x, top)])


def _width(channels: int) -> int:
    """1.4 times as many, in whole eights, and at most a tenth less."""
    wider = 1.4 * channels
    eights = max(8, int(wider + 4) // 8 * 8)
    return eights + 8 if eights < 0.9 * wider else eights


def _inverted_residual(
    b: NetworkBuilder,
    x: str,
    name: str,
    widths: tuple[int, int],
    expansion: int,
    kernel: int,
    stride: int,
) -> str:
    """Expand, convolve groups of channels, weigh the channels, and project."""
    inputs, outputs = widths
    wide, y = inputs * expansion, x
    if expansion > 1:
        y = _swish(b, _conv(b, y, f"{name}.expand", (inputs, wide), 1, norm=4))
    spatial = _conv(b, y, f"{name}.spatial", (wide, wide), kernel, stride, wide // 16, norm=4)
    y = _swish(b, spatial)
    few = inputs // 4
    z = b("GlobalAveragePool", y)
    z = _swish(b, _conv(b, z, f"{name}.squeeze", (wide, few), 1))
    z = b("Sigmoid", _conv(b, z, f"{name}.excite", (few, wide), 1))
    y = _conv(b, b("Mul", y, z), f"{name}.project", (wide, outputs), 1, norm=4)
    return b("Add", y, x) if stride == 1 and inputs == outputs else y


def vit_base_dropped(dtype: str = "float32") -> onnx.ModelProto:
    """image [batch, 3, 224, 224] -> logits [batch, 1000]: ViT-Base with dropout, on four chips."""
    b = NetworkBuilder("vit_base_dropped", dtype, training=True)
    b.place = (0, 0)
    ratio, training = b.full("dropped", value=0.1), b.truth("training")

    def dropout(x: str) -> str:
        return b("Dropout", x, ratio, training)

    places = [(layer // 3, layer // 3) for layer in range(12)]
    return vit_of(b, 12, dropout=dropout, places=places)


def _conv(
    b: NetworkBuilder,
    x: str,
    name: str,
    channels: tuple[int, int],
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    *,
    norm: int = 0,
) -> str:
    """A convolution of ``channels`` (in, out), with a bias, or normalised by ``norm`` groups."""
    inputs, outputs = channels
    weight = b.filters(f"{name}.weight", inputs, outputs, kernel, groups)
    bias = b.full(f"{name}.bias", outputs)
    settings: dict[str, Any] = {
        "auto_pad": "SAME_UPPER",
        "strides": [stride, stride],
        "group": groups,
    }
    if not norm:
        return b("Conv", x, weight, bias, name=f"{name}.conv", **settings)
    y = b("Conv", x, weight, name=f"{name}.conv", **settings)
    gain = b.full(f"{name}.gain", outputs, value=1.0)
    return b("GroupNormalization", y, gain, bias, num_groups=norm, name=f"{name}.norm")


def _swish(b: NetworkBuilder, x: str) -> str:
    return b("Mul", x, b("Sigmoid", x))
