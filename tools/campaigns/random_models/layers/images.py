"""Layers of networks for images [N, C, ...] of one to three spatial axes."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from tools.campaigns.random_models.builder import Builder
from tools.campaigns.random_models.evaluation import RefusedError
from tools.campaigns.random_models.layers.common import Layer, scaled
from tools.campaigns.random_models.layers.resizes import pyramid, resize, resize_to
from tools.campaigns.random_models.value import Value

__all__ = ["LAYERS"]

_MOST_PRODUCTS = 1 << 21


def _image(builder: Builder) -> Value:
    return builder.pick(lambda x: x.is_float and len(x.shape) in {3, 4, 5} and min(x.shape) > 0)


def _window(builder: Builder, x: Value, *, strided: bool = True) -> dict[str, Any]:
    """Attributes of a window over ``x``: of Conv and of pools."""
    axes = len(x.shape) - 2
    size = builder.choice([1, 1, 2, 3, 3, 3, 5])
    kernel = [
        size if builder.chance(0.85) else builder.choice([1, 2, 3, 4, 7]) for _ in range(axes)
    ]
    stride = builder.choice([1, 1, 2]) if strided else 1
    strides = [stride if builder.chance(0.9) else builder.number(1, 3) for _ in range(axes)]
    dilations = [builder.choice([1, 1, 1, 1, 2, 3])] * axes
    chosen: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
    if builder.chance(0.15) and max(dilations) == 1:
        chosen["auto_pad"] = builder.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    elif builder.chance(0.7):
        same = [(k - 1) * d // 2 for k, d in zip(kernel, dilations, strict=True)]
        chosen["pads"] = same * 2
    else:
        chosen["pads"] = [builder.number(0, max(k - 1, 0)) for k in kernel * 2]
    return chosen


def _bounded(products: int) -> None:
    if products > _MOST_PRODUCTS:
        raise RefusedError("too many products")


def _conv(builder: Builder) -> None:
    """Plain, grouped or depthwise, now and then with an activation."""
    x = _image(builder)
    inputs = x.shape[1]
    divisors = [g for g in range(1, inputs + 1) if inputs % g == 0]
    groups = builder.choice([1, 1, 1, inputs, builder.choice(divisors)])
    outputs = builder.channels()
    if groups > 1:
        outputs = groups * builder.choice([1, 1, 2, max(inputs // groups, 1)])
    window = _window(builder, x)
    shape = (outputs, inputs // groups, *window["kernel_shape"])
    _bounded(prod(shape) * prod(x.shape[2:]) * x.shape[0])
    weights = builder.weight(scaled(builder, shape, prod(shape[1:]), x))
    bias = builder.weight(builder.normal(outputs, dtype=x.array.dtype))
    operands = [x.name, weights, bias][: builder.number(2, 3)]
    y = builder.put("Conv", operands, group=groups, **window)
    activate(builder, y)


def activate(builder: Builder, y: Value) -> None:
    """Apply one of the functions that convolutions and products are fused with."""
    if builder.chance(0.5):
        kind = builder.choice(
            ["Relu", "Sigmoid", "LeakyRelu", "HardSwish", "Tanh", "Clip", "Swish"]
        )
        if kind == "Swish":
            builder.put("Mul", [y.name, builder.do("Sigmoid", [y.name])])
        elif kind == "Clip":
            limits = [builder.constant(limit, y.array.dtype) for limit in (0, 6)]
            builder.put("Clip", [y.name, *limits])
        else:
            builder.put(kind, [y.name])


def _conv_transpose(builder: Builder) -> None:
    x = _image(builder)
    inputs, outputs = x.shape[1], builder.choice([1, 3, 4, 7, 8, 16])
    divisors = [g for g in range(1, inputs + 1) if inputs % g == 0]
    groups = builder.choice([1, 1, 1, builder.choice(divisors), inputs])
    outputs = outputs if groups == 1 else groups * builder.choice([1, 2])
    axes = len(x.shape) - 2
    kernel = [builder.choice([1, 2, 2, 3, 4])] * axes
    strides = [builder.choice([1, 2, 2, 3])] * axes
    shape = (inputs, outputs // groups, *kernel)
    _bounded(prod(shape) * prod(x.shape[2:]) * x.shape[0])
    weights = builder.weight(scaled(builder, shape, inputs // groups * 2, x))
    bias = [builder.constant(builder.normal(outputs, dtype=x.array.dtype))]
    pads = [builder.number(0, (k - 1) // 2) for k in kernel] * 2
    extra = [builder.number(0, s - 1) if builder.chance(0.3) else 0 for s in strides]
    builder.put(
        "ConvTranspose",
        [x.name, weights, *(bias if builder.chance(0.5) else [])],
        group=groups,
        kernel_shape=kernel,
        strides=strides,
        pads=pads,
        output_padding=extra,
        dilations=[builder.choice([1, 1, 1, 2])] * axes,
    )


def _pool(builder: Builder) -> None:
    x = _image(builder)
    window = _window(builder, x)
    kind = builder.choice(["MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"])
    if kind == "LpPool" and (builder.opset < 18 or "auto_pad" in window):
        raise RefusedError("no dilations in LpPool of old; onnxruntime pads by less than nothing")
    if builder.opset < 19 and kind == "AveragePool":
        del window["dilations"]
    if "auto_pad" not in window:
        window["ceil_mode"] = builder.number(0, 1)
    _require_window(x, window)
    if kind == "AveragePool":
        window["count_include_pad"] = builder.number(0, 1)
    builder.put(kind, [x.name], **window)


def _require_window(x: Value, window: dict[str, Any]) -> None:
    """Refuse a window that does not fit: onnxruntime makes one up.

    Raises:
        RefusedError: some window is larger than the padded image.
    """
    if window.get("auto_pad", "VALID") != "VALID":
        return
    axes, dilations = len(x.shape) - 2, window.get("dilations", [1] * (len(x.shape) - 2))
    for axis, size in enumerate(x.shape[2:]):
        pads = window.get("pads", [0] * 2 * axes)
        extent = (window["kernel_shape"][axis] - 1) * dilations[axis] + 1
        room = pads[axis] + size + pads[axes + axis] - extent
        if room < (1 - window["strides"][axis] if window.get("ceil_mode") else 0):
            raise RefusedError("a window is larger than the image")


def _global_pool(builder: Builder) -> None:
    builder.put(builder.choice(["GlobalAveragePool", "GlobalMaxPool"]), [_image(builder).name])


def _attend_channels(builder: Builder) -> None:
    """Squeeze and excitation."""
    x = _image(builder)
    pooled = builder.do("GlobalAveragePool", [x.name])
    shape = (x.shape[1], x.shape[1], *(1 for _ in x.shape[2:]))
    weights = builder.constant(scaled(builder, shape, x.shape[1], x))
    gates = builder.do("Sigmoid", [builder.do("Conv", [pooled, weights])])
    builder.put("Mul", [x.name, gates])


def _batch_norm(builder: Builder) -> None:
    x = _image(builder)
    count = x.shape[1]
    operands = [
        *(
            builder.constant(builder.around(centre, count).astype(x.array.dtype))
            for centre in (1, 0, 0)
        ),
        builder.constant((np.abs(builder.normal(count)) + 0.5).astype(x.array.dtype)),
    ]
    activate(builder, builder.put("BatchNormalization", [x.name, *operands]))


def _instance_norm(builder: Builder) -> None:
    x = _image(builder)
    parameters = [
        builder.constant(builder.around(centre, x.shape[1]).astype(x.array.dtype))
        for centre in (1, 0)
    ]
    builder.put(
        "InstanceNormalization", [x.name, *parameters], epsilon=builder.choice([1e-5, 1e-2])
    )


def _group_norm(builder: Builder) -> None:
    x = _image(builder)
    groups = builder.choice([g for g in range(1, x.shape[1] + 1) if x.shape[1] % g == 0])
    count = groups if builder.opset < 21 else x.shape[1]
    parameters = [
        builder.constant(builder.around(centre, count).astype(x.array.dtype)) for centre in (1, 0)
    ]
    builder.put("GroupNormalization", [x.name, *parameters], num_groups=groups)


def _local_response(builder: Builder) -> None:
    x = _image(builder)
    builder.put("LRN", [x.name], size=builder.choice([1, 3, 5]), alpha=0.1, beta=0.75, bias=1.0)


def _channel_norm(builder: Builder) -> None:
    """LayerNormalization over the channels, between transposes."""
    x = _image(builder)
    rank = len(x.shape)
    turned = builder.emit("Transpose", [x.name], perm=[0, *range(2, rank), 1])[0]
    parameters = [
        builder.constant(builder.around(centre, x.shape[1]).astype(x.array.dtype))
        for centre in (1, 0)
    ]
    normal = builder.do("LayerNormalization", [turned.name, *parameters], axis=-1)
    builder.put("Transpose", [normal], perm=[0, rank - 1, *range(1, rank - 1)])


def _skip(builder: Builder) -> None:
    """Add, or join along the channels, two images of the same extents."""
    x = _image(builder)
    other = builder.like(x, lambda y: y.shape[:1] + y.shape[2:] == x.shape[:1] + x.shape[2:])
    third = builder.like(x, lambda y: y.shape[:1] + y.shape[2:] == x.shape[:1] + x.shape[2:])
    if x.shape == other.shape and builder.chance(0.5):
        activate(builder, builder.put("Add", [x.name, other.name]))
        return
    joined = [x.name, other.name, third.name][: builder.number(2, 3)]
    builder.put("Concat", joined, axis=1 if builder.chance(0.8) else 1 - len(x.shape))


def _split_channels(builder: Builder) -> None:
    """Parts of the channels by themselves, put together again in some order."""
    x = _image(builder)
    if x.shape[1] < 2:
        raise RefusedError("one channel")
    cut = builder.number(1, x.shape[1] - 1)
    sizes = builder.ints(cut, x.shape[1] - cut)
    parts = builder.emit("Split", [x.name, sizes], 2, axis=1)
    builder.keep(*parts)
    if builder.chance(0.6):
        changed = builder.do(builder.choice(["Relu", "Neg", "Sigmoid"]), [parts[0].name])
        builder.put("Concat", [parts[1].name, changed], axis=1)


def _shuffle(builder: Builder) -> None:
    """Channels of several groups in turns."""
    x = _image(builder)
    groups = builder.choice([g for g in range(1, x.shape[1] + 1) if x.shape[1] % g == 0])
    apart = (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    rows = builder.do("Reshape", [x.name, builder.ints(*apart)])
    turned = builder.do("Transpose", [rows], perm=[0, 2, 1, *range(3, len(apart))])
    builder.put("Reshape", [turned, builder.ints(*x.shape)])


def _turn(builder: Builder) -> None:
    """Channels last, something there, and back now and then."""
    x = _image(builder)
    rank = len(x.shape)
    turned = builder.put("Transpose", [x.name], perm=[0, *range(2, rank), 1])
    if builder.chance(0.6):
        bias = builder.constant(builder.normal(x.shape[1], dtype=x.array.dtype))
        moved = builder.put(builder.choice(["Add", "Mul"]), [turned.name, bias])
        builder.put("Transpose", [moved.name], perm=[0, rank - 1, *range(1, rank - 1)])


def _blocks(builder: Builder) -> None:
    """Pixels to channels, or channels to pixels."""
    x = builder.pick_float(4)
    if builder.chance(0.5):
        builder.put("SpaceToDepth", [x.name], blocksize=2)
    else:
        mode = builder.choice(["DCR", "CRD"])
        builder.put("DepthToSpace", [x.name], blocksize=2, mode=mode)


def _pad(builder: Builder) -> None:
    x = _image(builder)
    axes = len(x.shape) - 2
    pads = [0, 0, *(builder.number(0, 2) for _ in range(axes))]
    pads += [0, 0, *(builder.number(0, 2) for _ in range(axes))]
    modes = ["constant", "reflect", "edge", *(["wrap"] if builder.opset >= 19 else [])]
    builder.put("Pad", [x.name, builder.ints(*pads)], mode=builder.choice(modes))


def _classify(builder: Builder) -> None:
    x = _image(builder)
    flat = builder.emit("Flatten", [x.name], axis=1)[0]
    shape = (flat.shape[1], builder.choice([1, 3, 8, 10, 17]))
    weights = builder.constant(scaled(builder, shape, shape[0], x))
    bias = builder.constant(builder.normal(shape[1], dtype=x.array.dtype))
    y = builder.put("Gemm", [flat.name, weights, bias])
    if builder.chance(0.5):
        builder.put("Softmax", [y.name], axis=-1)


LAYERS: Final[tuple[Layer, ...]] = (
    *(_conv,) * 8,
    *(_skip,) * 5,
    *(_pool,) * 3,
    *(resize,) * 3,
    *(pyramid,) * 3,
    resize_to,
    *(_conv_transpose, _conv_transpose),
    *(_batch_norm, _batch_norm, _instance_norm, _group_norm, _channel_norm, _local_response),
    *(_global_pool, _attend_channels, _split_channels, _split_channels, _shuffle, _turn, _turn),
    *(_blocks, _pad, _classify),
)
