"""Parts of quantised networks: between all layers there are bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tools.campaigns.random_models.builder import Builder
from tools.campaigns.random_models.evaluation import RefusedError
from tools.campaigns.random_models.layers.common import Layer
from tools.campaigns.random_models.value import Value

__all__ = ["QUANTIZED_NETWORKS"]

_WIDTHS = (4, 8, 8, 16, 16, 17, 32)


@dataclass(frozen=True)
class _Bytes:
    """A tensor of bytes, and the names of its scale and zero point."""

    tensor: Value
    parameters: tuple[str, str]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape


def _quantized(builder: Builder, x: Value, kind: Any, *, positive: bool = False) -> _Bytes:
    """The bytes of ``x``; now and then some numbers do not fit."""
    peak = float(np.abs(x.array).max(initial=0.01)) * builder.choice([1.0, 1.0, 0.7])
    unsigned = np.dtype(kind) == np.uint8
    scale = np.float32(peak / (255 if positive and unsigned else 127))
    zero = (0 if positive else 128) if unsigned else 0
    parameters = (builder.constant(scale), builder.constant(zero, kind))
    made = builder.emit("QuantizeLinear", [x.name, *parameters])[0]
    return _Bytes(made, parameters)


def _numbers(builder: Builder, x: _Bytes) -> Value:
    return builder.emit("DequantizeLinear", [x.tensor.name, *x.parameters])[0]


def _weights(builder: Builder, shape: tuple[int, ...], terms: int) -> str:
    """Dequantised bytes, with a scale for all or for each output channel."""
    whole = builder.constant(builder.random.integers(-127, 128, shape).astype(np.int8))
    spread = 1 / (64 * max(terms, 1) ** 0.5)
    if builder.chance(0.5):
        scales = builder.random.uniform(0.5, 1.5, shape[0]) * spread
        zeros = builder.constant(np.zeros(shape[0], np.int8))
        operands = [whole, builder.constant(scales, np.float32), zeros]
        return builder.do("DequantizeLinear", operands, axis=0)
    zero = builder.constant(0, np.int8)
    return builder.do("DequantizeLinear", [whole, builder.constant(spread, np.float32), zero])


def _bias(builder: Builder, count: int) -> list[str]:
    if builder.chance(0.5):
        return []
    return [builder.constant(builder.normal(count, dtype=np.float32))]


def _conv(builder: Builder, x: _Bytes, kind: Any, *, stride: int = 1) -> _Bytes:
    """A convolution of bytes to bytes, plain or depthwise."""
    size = builder.choice([1, 3, 3])
    groups = x.shape[1] if builder.chance(0.25) else 1
    outputs = x.shape[1] if groups > 1 else builder.choice(_WIDTHS)
    shape = (outputs, x.shape[1] // groups, size, size)
    weights = _weights(builder, shape, shape[1] * size * size)
    operands = [_numbers(builder, x).name, weights, *_bias(builder, outputs)]
    window: dict[str, Any] = {"pads": [size // 2] * 4, "strides": [stride, stride]}
    y = builder.emit("Conv", operands, group=groups, **window)[0]
    positive = builder.chance(0.6)
    if positive:
        y = builder.emit("Relu", [y.name])[0]
    return _quantized(builder, y, kind, positive=positive)


def _begin(builder: Builder) -> tuple[_Bytes, Any]:
    x = builder.pick(
        lambda y: y.array.dtype == np.float32 and len(y.shape) == 4 and min(y.shape[2:]) >= 4
    )
    kind = builder.choice([np.int8, np.uint8])
    return _quantized(builder, x, kind), kind


def _end(builder: Builder, x: _Bytes) -> None:
    builder.keep(x.tensor, _numbers(builder, x))


def _joined(builder: Builder, parts: list[_Bytes], kind: Any) -> _Bytes:
    names = [_numbers(builder, part).name for part in parts]
    return _quantized(builder, builder.emit("Concat", names, axis=1)[0], kind)


def _residual(builder: Builder) -> None:
    """Convolutions, and a sum of what goes in and what comes out."""
    x, kind = _begin(builder)
    x = _conv(builder, x, kind)
    for _ in range(builder.number(1, 2)):
        y = _conv(builder, x, kind)
        if y.shape != x.shape:
            x = y
            continue
        total = builder.emit("Add", [_numbers(builder, y).name, _numbers(builder, x).name])[0]
        if builder.chance(0.5):
            total = builder.emit("Relu", [total.name])[0]
        x = _quantized(builder, total, kind)
    _end(builder, x)


def _pyramid(builder: Builder) -> None:
    """Bytes that are pooled, resized and joined."""
    x, kind = _begin(builder)
    fine = _conv(builder, x, kind)
    window: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    kind_of_pool = builder.choice(["MaxPool", "AveragePool"])
    small = builder.emit(kind_of_pool, [_numbers(builder, fine).name], **window)[0]
    coarse = _conv(builder, _quantized(builder, small, kind), kind)
    shape = builder.ints(*coarse.shape[:2], *fine.shape[2:])
    mode = builder.choice(["nearest", "linear"])
    grown = builder.emit("Resize", [_numbers(builder, coarse).name, None, None, shape], mode=mode)[
        0
    ]
    _end(builder, _joined(builder, [fine, _quantized(builder, grown, kind)], kind))


def _moved(builder: Builder) -> None:
    """Bytes that are moved and joined as they are, without scales."""
    x, kind = _begin(builder)
    x = _conv(builder, x, kind)
    if min(x.shape) < 1 or x.shape[1] < 2:
        raise RefusedError("too small")
    cut = builder.number(1, x.shape[1] - 1)
    sizes = builder.ints(cut, x.shape[1] - cut)
    parts = builder.emit("Split", [x.tensor.name, sizes], 2, axis=1)
    together = builder.emit("Concat", [part.name for part in parts[::-1]], axis=1)[0]
    changed = _Bytes(together, x.parameters)
    _end(builder, _conv(builder, changed, kind, stride=builder.choice([1, 2])))


def _classify(builder: Builder) -> None:
    """A mean over the image, and a product of bytes."""
    x, kind = _begin(builder)
    mean = builder.emit("GlobalAveragePool", [_numbers(builder, _conv(builder, x, kind)).name])[0]
    flat = builder.emit("Flatten", [_numbers(builder, _quantized(builder, mean, kind)).name])[0]
    weights = _weights(builder, (10, flat.shape[1]), flat.shape[1])
    y = builder.emit("Gemm", [flat.name, weights, *_bias(builder, 10)], transB=1)[0]
    _end(builder, _quantized(builder, y, kind))


QUANTIZED_NETWORKS: Final[tuple[Layer, ...]] = (_residual, _residual, _pyramid, _moved, _classify)
