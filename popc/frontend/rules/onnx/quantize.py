"""Quantisation operators."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import default_domain
from popc.frontend.tensors import dtype_from_onnx
from popc.ir import AttributeMap, Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES", "dequantize_linear", "quantize_linear"]


def quantize_linear(node: Node) -> Tensor:
    """``y = saturate(round(x / scale) + zero point)``, rounding half to even.

    The quotient is computed in float32 whatever the type of the scale and the ``precision``
    attribute of opset 23 say: half precision would only add a second rounding.
    """
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    if not scale.type.dtype.is_float:
        scale = node.emit("Cast", [scale], {"to": DType.FLOAT32.value})
    dtype = _quantized_dtype(node, zero)
    return node.emit("QuantizeLinear", [x, scale, zero], _granularity(node, x, scale, dtype))


def _quantized_dtype(node: Node, zero: Tensor | None) -> DType:
    number = node.integer("output_dtype", 0)
    if number == 0:
        return DType.UINT8 if zero is None else zero.type.dtype
    dtype = dtype_from_onnx(number)
    if zero is not None and zero.type.dtype is not dtype:
        raise ModelError(f"output_dtype is {dtype} but the zero point is {zero.type.dtype}")
    return dtype


def dequantize_linear(node: Node) -> Tensor:
    """``y = (x - zero point) * scale``."""
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    number = node.integer("output_dtype", 0)
    dtype = dtype_from_onnx(number) if number else scale.type.dtype
    return node.emit("DequantizeLinear", [x, scale, zero], _granularity(node, x, scale, dtype))


def _granularity(node: Node, x: Tensor, scale: Tensor, dtype: DType) -> AttributeMap:
    """The elements that share a scale; ``axis`` means nothing where one scale serves them all."""
    shared = scale.type.rank <= 1 and scale.type.size == 1
    axis = 0 if shared else normal_axis(node.integer("axis", 1), x.type.rank)
    block = 0 if shared or scale.type.rank != x.type.rank else node.integer("block_size", 0)
    return {"axis": axis, "block_size": block, "dtype": dtype.value}


def _dynamic_quantize_linear(node: Node) -> list[Tensor]:
    return node.emit_all("DynamicQuantizeLinear", [node.input(0)])


RULES: Final = default_domain(
    {
        "DequantizeLinear": dequantize_linear,
        "DynamicQuantizeLinear": _dynamic_quantize_linear,
        "QuantizeLinear": quantize_linear,
    }
)
