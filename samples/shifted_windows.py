"""Swin transformers as ONNX models, as transformers exports them, with arbitrary weights.

Liu et al. 2021: attention within windows of an image, whose borders move by half a window from
layer to layer.  What an exporter folds, biases by position and masks of moved windows, are weights.
"""

from __future__ import annotations

from typing import Final

import onnx

from samples.network_builder import NetworkBuilder

__all__ = ["swin_large"]

_WINDOW: Final = 12
_HEAD: Final = 32
_FAR: Final = -100.0  # added to scores of pixels that only moving has made neighbours


def swin_large(dtype: str = "float32") -> onnx.ModelProto:
    """image [batch, 3, 384, 384] -> logits [batch, 1000]: Swin-L with windows of 12 by 12."""
    b = NetworkBuilder("swin_large", dtype)
    size, side = 192, 96
    weight = b.weight("patch.weight", size, 3, 4, 4, scale=0.1)
    x = b("Conv", "image", weight, b.full("patch.bias", size), strides=[4, 4], name="patch.conv")
    x = b("Reshape", x, b.integers("patches", 0, size, side * side))
    x = b.layer_norm(b("Transpose", x, perm=[0, 2, 1]), "patch.norm", size)
    for stage, blocks in enumerate((2, 2, 18, 2)):
        for block in range(blocks):
            moved = _WINDOW // 2 if block % 2 and side > _WINDOW else 0
            x = _block(b, x, f"stage{stage}.{block}", size, side, moved)
        if stage < 3:
            x = _merged(b, x, f"stage{stage}.merge", size, side)
            size, side = 2 * size, side // 2
    x = b.layer_norm(x, "norm", size)
    pooled = b("GlobalAveragePool", b("Transpose", x, perm=[0, 2, 1]))
    x = b("Reshape", pooled, b.integers("pooled", 0, size))
    b("Identity", b.linear(x, "classifier", size, 1000), name="logits")
    return b.model([b.floats("image", "batch", 3, 384, 384)], [b.floats("logits", "batch", 1000)])


def _block(b: NetworkBuilder, x: str, name: str, size: int, side: int, moved: int) -> str:
    """Attention in windows, whose borders are ``moved`` by some pixels, and two dense layers."""
    count = side // _WINDOW
    y = b.layer_norm(x, f"{name}.norm1", size)
    y = b("Reshape", y, b.integers(f"{name}.image", 0, side, side, size))
    y = _rolled(b, y, f"{name}.there", moved)
    y = b("Reshape", y, b.integers(f"{name}.cut", 0, count, _WINDOW, count, _WINDOW, size))
    y = b("Transpose", y, perm=[0, 1, 3, 2, 4, 5])
    y = b("Reshape", y, b.integers(f"{name}.windows", -1, _WINDOW * _WINDOW, size))
    y = _attention(b, y, name, size, count * count if moved else 1)
    y = b("Reshape", y, b.integers(f"{name}.uncut", -1, count, count, _WINDOW, _WINDOW, size))
    y = b("Transpose", y, perm=[0, 1, 3, 2, 4, 5])
    y = b("Reshape", y, b.integers(f"{name}.whole", -1, side, side, size))
    y = _rolled(b, y, f"{name}.back", -moved)
    x = b("Add", x, b("Reshape", y, b.integers(f"{name}.pixels", 0, side * side, size)))
    y = b.linear(b.layer_norm(x, f"{name}.norm2", size), f"{name}.up", size, 4 * size)
    return b("Add", x, b.linear(b("Gelu", y), f"{name}.down", 4 * size, size))


def _rolled(b: NetworkBuilder, x: str, name: str, by: int) -> str:
    """Both axes of images, from place ``by`` on, and what was before that behind."""
    if not by:
        return x
    at, most = b.integers(f"{name}.at", by), b.integers(f"{name}.most", 1 << 30)
    start = b.integers(f"{name}.start", 0)
    for axis in (1, 2):
        along = b.integers(f"{name}.axis{axis}", axis)
        x = b("Concat", b("Slice", x, at, most, along), b("Slice", x, start, at, along), axis=axis)
    return x


def _attention(b: NetworkBuilder, x: str, name: str, size: int, masks: int) -> str:
    """Attention within windows [windows, pixels, size], ``masks`` of which differ in an image."""
    pixels, heads = _WINDOW * _WINDOW, size // _HEAD
    split = b.integers(f"{name}.split", 0, pixels, heads, _HEAD)
    q, k, v = (
        b("Reshape", b.linear(x, f"{name}.{part}", size, size), split)
        for part in ("query", "key", "value")
    )
    turned = b("Transpose", k, perm=[0, 2, 3, 1])
    scores = b("MatMul", b("Transpose", q, perm=[0, 2, 1, 3]), turned, name=f"{name}.scores")
    scores = b("Div", scores, b.full(f"{name}.root", value=_HEAD**0.5))
    scores = b("Add", scores, b.weight(f"{name}.places", 1, heads, pixels, pixels))
    if masks > 1:
        apart = b.integers(f"{name}.apart", -1, masks, heads, pixels, pixels)
        scores = b("Reshape", scores, apart)
        scores = b("Add", scores, b.full(f"{name}.mask", 1, masks, 1, pixels, pixels, value=_FAR))
        scores = b("Reshape", scores, b.integers(f"{name}.joined", -1, heads, pixels, pixels))
    mixed = b("MatMul", b("Softmax", scores, axis=-1), b("Transpose", v, perm=[0, 2, 1, 3]))
    merge = b.integers(f"{name}.merge", 0, pixels, size)
    merged = b("Reshape", b("Transpose", mixed, perm=[0, 2, 1, 3]), merge)
    return b.linear(merged, f"{name}.mix", size, size)


def _merged(b: NetworkBuilder, x: str, name: str, size: int, side: int) -> str:
    """Four neighbouring pixels become one, with twice the channels."""
    image = b("Reshape", x, b.integers(f"{name}.image", 0, side, side, size))
    most, axes = b.integers(f"{name}.most", side, side), b.integers(f"{name}.axes", 1, 2)
    steps = b.integers(f"{name}.steps", 2, 2)
    parts = [
        b("Slice", image, b.integers(f"{name}.from{row}{column}", row, column), most, axes, steps)
        for column in (0, 1)
        for row in (0, 1)
    ]
    x = b("Concat", *parts, axis=-1)
    x = b("Reshape", x, b.integers(f"{name}.pixels", 0, side * side // 4, 4 * size))
    return b.product(b.layer_norm(x, f"{name}.norm", 4 * size), name, 4 * size, 2 * size)
