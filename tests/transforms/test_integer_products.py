"""The pass that multiplies and convolves quantised tensors as integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from popc.ir import Tensor, TensorType
from popc.transforms.base import run_to_fixed_point
from popc.transforms.dead_code import DeadCode
from popc.transforms.integer_products import IntegerProducts
from popc_runtime.format import DType
from tests.support.oracles import run_graph
from tests.transforms.building import Builder

_X = TensorType(DType.UINT8, (2, 6, 8))
_SCALE = 0.03


class _Builder(Builder):
    """A graph with one input ``x``, bytes."""

    def __init__(self) -> None:
        super().__init__(_X)

    def dequantized(self, x: Tensor, scale: Any, zero: Any = None, axis: int = 0) -> Tensor:
        offset = None if zero is None else self.constant(zero, x.type.dtype)
        operands = [x, self.constant(scale), offset]
        return self.emit("DequantizeLinear", operands, axis=axis, dtype="float32")

    def image(self) -> Tensor:
        return self.dequantized(self.x, _SCALE, 100)

    def weights(self, *shape: int, axis: int = 0) -> Tensor:
        """Weights with a scale and a zero point for each line along ``axis``."""
        numbers = self.constant(np.arange(np.prod(shape)).reshape(shape) % 255 - 127, DType.INT8)
        lines = shape[axis]
        return self.dequantized(numbers, _scales(lines), np.arange(lines), axis)

    def convolution(self, bias: Tensor | None, **attributes: Any) -> Tensor:
        windows: dict[str, Any] = {"strides": (1,), "pads": (1, 1), "dilations": (1,)}
        weights = self.weights(12, 3, 3)
        inputs = [self.image(), weights, bias]
        return self.emit("Conv", inputs, group=2, **(windows | attributes))


def _scales(count: int) -> Any:
    return np.linspace(0.01, 0.02, count, dtype=np.float32)


def _integer_bias(b: _Builder) -> Tensor:
    scale = np.float32(_SCALE) * _scales(12)
    bias = b.dequantized(b.constant(np.arange(12) * 100, DType.INT32), scale, np.zeros(12))
    return b.convolution(bias)


def _large_bias(b: _Builder) -> Tensor:
    """Sums with it exceed int32."""
    whole = b.constant(np.full(12, 2**31 - 1), DType.INT32)
    return b.convolution(b.dequantized(whole, np.float32(_SCALE) * _scales(12)))


def _computed_bias(b: _Builder) -> Tensor:
    pixels = b.emit("Slice", [b.x], starts=(0, 0, 0), sizes=(2, 6, 1), steps=(1, 1, 1))
    row = b.emit("Cast", [b.emit("Reshape", [pixels], shape=(12,))], to="int32")
    return b.convolution(b.dequantized(row, np.float32(_SCALE) * _scales(12)))


def _float_bias(b: _Builder) -> Tensor:
    return b.convolution(b.constant(np.arange(12)))


def _otherwise_scaled_bias(b: _Builder) -> Tensor:
    return b.convolution(b.dequantized(b.constant(np.arange(12), DType.INT32), 0.5))


def _with_activation(b: _Builder) -> Tensor:
    return b.convolution(None, activation="Relu")


def _turned_gemm(b: _Builder) -> Tensor:
    left = b.dequantized(b.emit("Reshape", [b.x], shape=(12, 8)), _SCALE, 100)
    return b.emit("Gemm", [left, b.weights(5, 8), b.constant(range(5))], transB=1)


def _scaled_gemm(b: _Builder) -> Tensor:
    left = b.dequantized(b.emit("Reshape", [b.x], shape=(12, 8)), _SCALE, 100)
    return b.emit("Gemm", [left, b.weights(5, 8), b.constant(range(5))], transB=1, alpha=2.0)


@pytest.mark.parametrize(
    ("make", "op_types"),
    [
        (_integer_bias, ["ConvInteger", "Mul"]),
        (_large_bias, ["ConvInteger", "Mul", "DequantizeLinear", "Reshape", "Add"]),
        (
            _computed_bias,
            [
                "Slice",
                "Reshape",
                "Cast",
                "ConvInteger",
                "Mul",
                "DequantizeLinear",
                "Reshape",
                "Add",
            ],
        ),
        (_float_bias, ["ConvInteger", "Mul", "Reshape", "Add"]),
        (_otherwise_scaled_bias, ["ConvInteger", "Mul", "DequantizeLinear", "Reshape", "Add"]),
        (_with_activation, ["DequantizeLinear", "DequantizeLinear", "Conv"]),
        (_turned_gemm, ["Reshape", "Transpose", "MatMulInteger", "Mul", "Add"]),
        (_scaled_gemm, ["Reshape", "DequantizeLinear", "DequantizeLinear", "Gemm"]),
    ],
)
def test_same_result_by_integers(make: Callable[[_Builder], Tensor], op_types: list[str]) -> None:
    """But for the rounding of sums of floats."""
    builder = _Builder()
    builder.graph.add_output("y", make(builder))
    feeds = {"x": np.random.default_rng(0).integers(0, 255, _X.shape, np.uint8)}
    (before,) = run_graph(builder.graph, feeds)
    run_to_fixed_point([IntegerProducts(), DeadCode()], builder.graph, check=True)
    assert sorted(op.op_type for op in builder.graph.topological()) == sorted(op_types)
    (after,) = run_graph(builder.graph, feeds)
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5 * np.abs(before).max())


def test_attributes_are_those_of_integer_convolutions() -> None:
    builder = _Builder()
    y = builder.convolution(None, partials_type="float", activation="")
    builder.graph.add_output("y", y)
    run_to_fixed_point([IntegerProducts(), DeadCode()], builder.graph, check=True)
    (conv,) = (op for op in builder.graph.topological() if op.op_type == "ConvInteger")
    assert set(conv.attributes) == {"strides", "pads", "dilations", "group", "dtype"}
