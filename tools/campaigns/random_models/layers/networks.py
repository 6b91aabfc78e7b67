"""Parts of networks as they are drawn in papers: pyramids, dense and residual blocks, branches."""

from __future__ import annotations

from math import prod
from typing import Any, Final

from tools.campaigns.random_models.builder import Builder
from tools.campaigns.random_models.evaluation import RefusedError
from tools.campaigns.random_models.layers.common import Layer, scaled
from tools.campaigns.random_models.layers.resizes import resize_node
from tools.campaigns.random_models.value import Value

__all__ = ["NETWORKS"]

_WIDTHS = (4, 8, 8, 8, 9, 12, 16, 16, 16, 17, 24, 32, 33)
_ACTIVATIONS = ("Relu", "Relu", "HardSwish", "Sigmoid", "LeakyRelu", "Swish", "Identity", "PRelu")


def _image(builder: Builder) -> Value:
    return builder.pick(
        lambda x: x.is_float and len(x.shape) in {3, 4, 5} and min(x.shape[2:]) >= 4
    )


def _width(builder: Builder) -> int:
    return builder.choice(_WIDTHS)


def _activated(builder: Builder, x: Value) -> Value:
    kind = builder.choice(_ACTIVATIONS)
    if kind == "Identity":
        return x
    if kind == "Swish":
        return builder.emit("Mul", [x.name, builder.do("Sigmoid", [x.name])])[0]
    if kind == "PRelu":
        slope = builder.normal(
            x.shape[1], *(1 for _ in x.shape[2:]), scale=0.3, dtype=x.array.dtype
        )
        return builder.emit("PRelu", [x.name, builder.constant(slope)])[0]
    return builder.emit(kind, [x.name])[0]


def _conv(
    builder: Builder, x: Value, outputs: int, size: int = 3, *, groups: int = 1, stride: int = 1
) -> Value:
    """A convolution that keeps extents if its stride is 1, perhaps with what follows it."""
    axes = len(x.shape) - 2
    shape = (outputs, x.shape[1] // groups, *[size] * axes)
    if prod(shape) * prod(x.shape[2:]) * x.shape[0] > 1 << 21:
        raise RefusedError("too many products")
    operands = [x.name, builder.constant(scaled(builder, shape, prod(shape[1:]), x))]
    if builder.chance(0.5):
        operands.append(builder.constant(builder.normal(outputs, dtype=x.array.dtype)))
    window: dict[str, Any] = {"pads": [size // 2] * 2 * axes, "strides": [stride] * axes}
    y = builder.emit("Conv", operands, group=groups, **window)[0]
    if builder.chance(0.3):
        parameters = [
            builder.constant(builder.around(centre, outputs).astype(x.array.dtype))
            for centre in (1, 0, 0, 1)
        ]
        y = builder.emit("BatchNormalization", [y.name, *parameters])[0]
    return _activated(builder, y)


def _smaller(builder: Builder, x: Value) -> Value:
    """Half the extents."""
    axes = len(x.shape) - 2
    kind = builder.choice(["MaxPool", "MaxPool", "AveragePool", "Conv"])
    if kind == "Conv":
        return _conv(builder, x, _width(builder), stride=2)
    size = builder.choice([2, 2, 3] if min(x.shape[2:]) > 2 else [1])
    window: dict[str, Any] = {"kernel_shape": [size] * axes, "strides": [2] * axes}
    return builder.emit(kind, [x.name], ceil_mode=builder.number(0, 1), **window)[0]


def _larger(builder: Builder, x: Value, like: Value) -> Value:
    """The extents of ``like``."""
    if builder.chance(0.15):
        axes = len(x.shape) - 2
        shape = (x.shape[1], _width(builder), *[2] * axes)
        weights = builder.constant(scaled(builder, shape, x.shape[1], x))
        x = builder.emit("ConvTranspose", [x.name, weights], strides=[2] * axes)[0]
    return resize_node(builder, x, (*x.shape[:2], *like.shape[2:]))


def _joined(builder: Builder, *images: Value) -> Value:
    order = [images[int(i)].name for i in builder.random.permutation(len(images))]
    return builder.emit("Concat", order, axis=1)[0]


def _added(builder: Builder, a: Value, b: Value) -> Value:
    if a.shape[1] != b.shape[1]:
        b = _conv(builder, b, a.shape[1], 1)
    return builder.emit("Add", [a.name, b.name][:: builder.choice([1, -1])])[0]


def _u_net(builder: Builder) -> None:
    """Down, and up again with what lay at the side."""
    x = _conv(builder, _image(builder), _width(builder), builder.choice([1, 3]))
    sides = []
    for _ in range(builder.number(1, 2)):
        sides.append(x)
        x = _smaller(builder, x)
        if builder.chance(0.7):
            x = _conv(builder, x, _width(builder), builder.choice([1, 3]))
    for side in reversed(sides):
        x = _larger(builder, x, side)
        x = _joined(builder, x, side) if builder.chance(0.75) else _added(builder, x, side)
        if builder.chance(0.5):
            x = _activated(builder, x)
        if builder.chance(0.6):
            x = _conv(builder, x, _width(builder), builder.choice([1, 3]))
    builder.keep(*sides, x)


def _dense(builder: Builder) -> None:
    """Each layer reads all before it."""
    known = [_image(builder)]
    for _ in range(builder.number(2, 3)):
        x = _joined(builder, *known) if len(known) > 1 else known[0]
        if builder.chance(0.3):
            x = _activated(builder, x)
        known.append(_conv(builder, x, _width(builder), builder.choice([1, 3])))
    builder.keep(_joined(builder, *known))


def _residual(builder: Builder) -> None:
    """A sum with what was there before, as it is or projected."""
    x = _image(builder)
    if builder.chance(0.5):
        x = _conv(builder, x, _width(builder), 1)
    for _ in range(builder.number(1, 2)):
        width = x.shape[1] if builder.chance(0.6) else _width(builder)
        y = _conv(builder, _conv(builder, x, _width(builder), 1), width)
        x = _activated(builder, _added(builder, y, x))
        builder.keep(x)


def _inverted(builder: Builder) -> None:
    """Wide and depthwise between two narrow ends, with gates now and then."""
    x = _image(builder)
    wide = _conv(builder, x, builder.choice([8, 16, 24, 32, 48]), 1)
    y = _conv(builder, wide, wide.shape[1], builder.choice([3, 5]), groups=wide.shape[1])
    if builder.chance(0.4):
        pooled = builder.emit("GlobalAveragePool", [y.name])[0]
        gates = _conv(builder, _conv(builder, pooled, 4, 1), y.shape[1], 1)
        kind = builder.choice(["Sigmoid", "HardSigmoid"])
        y = builder.emit("Mul", [y.name, builder.do(kind, [gates.name])])[0]
    y = _conv(builder, y, x.shape[1], 1)
    builder.keep(builder.emit("Add", [x.name, y.name])[0])


def _branches(builder: Builder) -> None:
    """Several windows over the same image, joined."""
    x = _image(builder)
    if builder.chance(0.5):
        x = _conv(builder, x, _width(builder), 1)
    axes = len(x.shape) - 2
    parts = [_conv(builder, x, _width(builder), size) for size in (1, 3, 5)[: builder.number(1, 3)]]
    window: dict[str, Any] = {"kernel_shape": [3] * axes, "pads": [1] * 2 * axes}
    kind = builder.choice(["MaxPool", "AveragePool"])
    parts.append(builder.emit(kind, [x.name], **window)[0])
    if builder.chance(0.4):
        parts.append(x)
    joined = _joined(builder, *parts)
    builder.keep(joined)
    if builder.chance(0.5):
        builder.keep(_conv(builder, joined, _width(builder), 1))


def _pyramid(builder: Builder) -> None:
    """Features of several extents, brought to each other's and added or joined."""
    levels = [_conv(builder, _image(builder), _width(builder))]
    for _ in range(builder.number(1, 2)):
        levels.append(_conv(builder, _smaller(builder, levels[-1]), _width(builder)))
    fused = levels[-1]
    for level in reversed(levels[:-1]):
        fused = _added(builder, _larger(builder, fused, level), level)
        builder.keep(fused)
    if builder.chance(0.5):
        largest = levels[0]
        builder.keep(_joined(builder, *(_larger(builder, level, largest) for level in levels)))


def _shuffled(builder: Builder) -> None:
    """Half of the channels goes through, half is changed; then channels take turns."""
    x = _conv(builder, _image(builder), 2 * builder.choice([4, 8, 9, 16]), 1)
    half = x.shape[1] // 2
    kept, changed = builder.emit("Split", [x.name, builder.ints(half, half)], 2, axis=1)
    changed = _conv(builder, _conv(builder, changed, half, groups=half), half, 1)
    x = builder.emit("Concat", [kept.name, changed.name], axis=1)[0]
    apart = builder.do("Reshape", [x.name, builder.ints(x.shape[0], 2, half, *x.shape[2:])])
    perm = [0, 2, 1, *range(3, len(x.shape) + 1)]
    turned = builder.do("Transpose", [apart], perm=perm)
    builder.put("Reshape", [turned, builder.ints(*x.shape)])


def _sliced(builder: Builder) -> None:
    """Every other pixel into channels of its own, as YOLO begins; or a window cut out."""
    x = _image(builder)
    if builder.chance(0.5):
        x = _conv(builder, x, _width(builder))
    axes = range(2, len(x.shape))
    even = [builder.emit("Slice", [x.name, builder.ints(*[start] * len(axes)),
                                   builder.ints(*[dim // 2 * 2 for dim in x.shape[2:]]),
                                   builder.ints(*axes), builder.ints(*[2] * len(axes))])[0]
            for start in (0, 1)]  # fmt: skip
    x = _joined(builder, *even)
    builder.keep(x, _conv(builder, x, _width(builder), 1))


NETWORKS: Final[tuple[Layer, ...]] = (
    *(_u_net,) * 4,
    *(_dense, _residual, _inverted, _branches, _pyramid, _pyramid, _shuffled, _sliced),
)
