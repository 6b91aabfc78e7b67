"""Layers of quantised networks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tools.campaigns.random_models.builder import Builder
from tools.campaigns.random_models.layers.common import Layer
from tools.campaigns.random_models.value import Value

__all__ = ["LAYERS"]


def _parameters(builder: Builder, like: Value, kind: Any) -> list[str]:
    """A scale and a zero point for what is about as large as ``like``."""
    peak = float(np.abs(like.array.astype(np.float32)).max(initial=0.1)) or 1.0
    scale = np.float32(peak / builder.choice([127.0, 100.0, 32.0]))
    zero = builder.choice([0, 0, 3]) if np.dtype(kind) == np.int8 else builder.choice([128, 120])
    return [builder.constant(scale), builder.constant(zero, kind)]


def _quantize(builder: Builder) -> None:
    """Through bytes and back."""
    x = builder.pick(lambda y: y.array.dtype == np.float32 and y.array.size > 0)
    parameters = _parameters(builder, x, builder.choice([np.int8, np.uint8]))
    there = builder.put("QuantizeLinear", [x.name, *parameters])
    builder.put("DequantizeLinear", [there.name, *parameters])


def _bytes_of(builder: Builder, shape: tuple[int, ...], terms: int) -> tuple[str, list[str]]:
    """Weights of bytes, and their scale or scales and zero points."""
    whole = builder.random.integers(-127, 128, shape).astype(np.int8)
    scale = np.float32(1.0 / (64 * max(terms, 1) ** 0.5))
    return builder.constant(whole), [builder.constant(scale), builder.constant(0, np.int8)]


def _quantized_conv(builder: Builder) -> None:
    """A convolution between DequantizeLinear and QuantizeLinear."""
    x = builder.pick(
        lambda y: y.array.dtype == np.float32 and len(y.shape) == 4 and y.array.size > 0
    )
    given = _parameters(builder, x, builder.choice([np.int8, np.uint8]))
    image = builder.do("QuantizeLinear", [x.name, *given])
    size, outputs = builder.choice([1, 3]), builder.choice([1, 4, 8, 16, 17])
    shape = (outputs, x.shape[1], size, size)
    weights, parameters = _bytes_of(builder, shape, x.shape[1] * size * size)
    pixels = builder.do("DequantizeLinear", [image, *given])
    kernel = builder.do("DequantizeLinear", [weights, *parameters])
    y = builder.emit("Conv", [pixels, kernel], pads=[size // 2] * 4)[0]
    if builder.chance(0.5):
        y = builder.emit("Relu", [y.name])[0]
    builder.keep(y)
    if builder.chance(0.7):
        result = _parameters(builder, y, builder.choice([np.int8, np.uint8]))
        there = builder.put("QuantizeLinear", [y.name, *result])
        builder.put("DequantizeLinear", [there.name, *result])


def _quantized_product(builder: Builder) -> None:
    x = builder.pick(
        lambda y: y.array.dtype == np.float32 and len(y.shape) >= 2 and y.array.size > 0
    )
    given = _parameters(builder, x, builder.choice([np.int8, np.uint8]))
    rows = builder.do("QuantizeLinear", [x.name, *given])
    shape = (x.shape[-1], builder.choice([1, 7, 8, 16, 33]))
    weights, parameters = _bytes_of(builder, shape, shape[0])
    numbers = builder.do("DequantizeLinear", [rows, *given])
    matrix = builder.do("DequantizeLinear", [weights, *parameters])
    y = builder.put("MatMul", [numbers, matrix])
    if builder.chance(0.5):
        result = _parameters(builder, y, np.int8)
        there = builder.do("QuantizeLinear", [y.name, *result])
        builder.put("DequantizeLinear", [there, *result])


def _integer_product(builder: Builder) -> None:
    """MatMulInteger on bytes that are computed."""
    x = builder.pick(
        lambda y: y.array.dtype == np.float32 and len(y.shape) >= 2 and y.array.size > 0
    )
    scale, zero = _parameters(builder, x, np.uint8)
    rows = builder.emit("QuantizeLinear", [x.name, scale, zero])[0]
    shape = (x.shape[-1], builder.choice([1, 4, 8, 17]))
    weights, _ = _bytes_of(builder, shape, shape[0])
    total = builder.do("MatMulInteger", [rows.name, weights, zero])
    float_total = builder.do("Cast", [total], to=1)
    builder.put("Mul", [float_total, builder.constant(np.float32(1e-3))])


def _quantized_fully(builder: Builder) -> None:
    """QLinearConv on bytes."""
    x = builder.pick(
        lambda y: y.array.dtype == np.float32 and len(y.shape) == 4 and y.array.size > 0
    )
    given = _parameters(builder, x, np.uint8)
    image = builder.do("QuantizeLinear", [x.name, *given])
    size = builder.choice([1, 3])
    shape = (builder.choice([1, 8, 16]), x.shape[1], size, size)
    weights, parameters = _bytes_of(builder, shape, x.shape[1] * size * size)
    result = _parameters(builder, x, np.uint8)
    operands = [image, *given, weights, *parameters, *result]
    y = builder.put("QLinearConv", operands, pads=[size // 2] * 4)
    builder.put("DequantizeLinear", [y.name, *result])


def _dynamic(builder: Builder) -> None:
    x = builder.pick(lambda y: y.array.dtype == np.float32 and y.array.size > 0)
    there, scale, zero = builder.emit("DynamicQuantizeLinear", [x.name], 3)
    builder.put("DequantizeLinear", [there.name, scale.name, zero.name])


LAYERS: Final[tuple[Layer, ...]] = (
    *(_quantize, _quantized_conv, _quantized_product, _integer_product, _quantized_fully),
    _dynamic,
)
