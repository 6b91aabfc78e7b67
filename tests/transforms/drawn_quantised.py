"""Graphs of quantised numbers, and steps that several passes look for, as in `drawn_passes`."""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.ir import Shape, Tensor
from popc_runtime.format import DType
from tests.transforms.drawing import Drawing

__all__ = ["activated", "byte_sums", "integer_products", "plus", "product", "quantised"]


def product(d: Drawing, a: Tensor, b: Tensor) -> Tensor:
    return d("Mul", *((a, b) if d.flag() else (b, a)))


def plus(d: Drawing, a: Tensor, b: Tensor) -> Tensor:
    return d("Add", *((a, b) if d.flag() else (b, a)))


_FUSED_ACTIVATIONS: Final = (
    "Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "Gelu", "HardSigmoid", "HardSwish", "Elu",
)  # fmt: skip


def activated(d: Drawing, x: Tensor) -> Tensor:
    op_type = d.of(*_FUSED_ACTIVATIONS)
    attributes: dict[str, object] = {
        "LeakyRelu": {"alpha": 0.1},
        "Clip": {"min": -0.5, "max": 1.0},
        "HardSigmoid": {"alpha": 0.25, "beta": 0.5},
        "Elu": {"alpha": 1.0},
        "Gelu": {"approximate": "none"},
    }.get(op_type, {})  # type: ignore[assignment]
    return d(op_type, x, **attributes)


def _scale(d: Drawing, usual: float = 0.1) -> Tensor:
    return d.scalar(DType.FLOAT32, *[usual] * 10, most=0)


def _zero(d: Drawing, dtype: DType) -> Tensor:
    return d.scalar(dtype, 0, 3, most=0)


def quantised(d: Drawing) -> Tensor:
    kind = d.of("pair", "pair", "repetition", "conversion")
    dtype = d.of(DType.INT8, DType.UINT8)
    if kind == "conversion":
        sums = d("MatMulInteger", d.input((2, 3), dtype), d.input((3, 2), dtype), dtype="int32")
        return d("Cast", sums, to=d.of("float32", "float64", "int64"))
    x = d.input(d.shape(), d.of(DType.FLOAT32, DType.FLOAT32, DType.FLOAT16))
    scale, zero = _scale(d), _zero(d, dtype)
    if x.type.dtype is not DType.FLOAT32:
        x = d("Cast", x, to="float32")
    y = x
    for _ in range(1 if kind == "pair" else 2):
        q = d("QuantizeLinear", y, scale, zero, dtype=dtype.value)
        y = d("DequantizeLinear", q, scale, zero, dtype="float32")
        y = d("Reshape", y, shape=(1, *y.type.shape)) if kind != "pair" else y
    return y


def _dequantised(d: Drawing, shape: Shape, axis: int | None = None) -> Tensor:
    dtype = d.of(DType.INT8, DType.UINT8)
    if axis is None or d.flag():
        return d(
            "DequantizeLinear", d.input(shape, dtype), _scale(d), _zero(d, dtype), dtype="float32"
        )
    scales = d.extremes((shape[axis],))
    zeros = d.constant(np.zeros(shape[axis]), dtype)
    weights = d.constant(np.arange(np.prod(shape)).reshape(shape) % 100, dtype)
    return d("DequantizeLinear", weights, scales, zeros, axis=axis, dtype="float32")


def integer_products(d: Drawing) -> Tensor:
    if d.flag():
        rows, depth, columns = d.number(1, 3), d.number(1, 3), d.number(1, 3)
        left, right = _dequantised(d, (rows, depth)), _dequantised(d, (depth, columns), 1)
        if d.flag():
            return d("MatMul", left, right)
        bias = d.extremes(d.of((columns,), (rows, columns), ()))
        return d("Gemm", left, right, bias, alpha=1.0, beta=1.0)
    x = _dequantised(d, (1, 2, 3, 3))
    dtype = d.of(DType.INT8, DType.UINT8)
    weights = d.constant(np.arange(12).reshape(3, 2, 1, 2), dtype)
    w = d("DequantizeLinear", weights, _scale(d), _zero(d, dtype), dtype="float32")
    return d("Conv", x, w, *([d.extremes((3,))] if d.flag() else []))


def byte_sums(d: Drawing) -> Tensor:
    dtype = d.of(DType.INT8, DType.UINT8)
    if d.flag():
        batch = d.shape(most=2, smallest=1)
        y = d(
            "MatMulInteger", d.input((*batch, 2, 3), dtype), d.input((3, 2), dtype), dtype="float32"
        )
    else:
        x, w = (
            d.input((1, 2, 3, 3), dtype),
            d.constant(np.arange(8).reshape(2, 2, 1, 2), DType.INT8),
        )
        y = d("ConvInteger", x, w, dtype="float32")
    for _ in range(d.number(1, 4)):
        match d.of("Mul", "Add", "activation", "FakeQuantize", "move"):
            case "activation":
                y = activated(d, y)
            case "FakeQuantize":
                y = d("FakeQuantize", y, scale=d.of(0.1, 1e-30, 2.0), low=-128.0, high=127.0)
            case "move":
                y = (
                    d("Reshape", y, shape=(1, *y.type.shape))
                    if d.flag()
                    else d("Transpose", y, perm=tuple(reversed(range(y.type.rank))))
                )
            case op_type:
                shape = d.beside(y.type.shape)
                y = (
                    product(d, y, d.extremes(shape))
                    if op_type == "Mul"
                    else plus(d, y, d.extremes(shape))
                )
    if d.flag():
        return d("QuantizeLinear", y, _scale(d), _zero(d, dtype), dtype=dtype.value)
    return y
