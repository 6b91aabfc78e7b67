"""Quantisation operators."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import converted, default_domain, reshaped
from popc.frontend.rules.float8 import exponent_of
from popc.frontend.rules.moves import emit_slice
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
    if dtype.is_float8:
        return _to_float8(node, x, scale, zero, dtype)
    return node.emit("QuantizeLinear", [x, scale, zero], _granularity(node, x, scale, dtype))


def _to_float8(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None, dtype: DType) -> Tensor:
    """The quotient, as `Cast` converts it."""
    _require_zero(node, zero)
    saturates, exponent = node.integer("saturate", 1), exponent_of(node, 1)
    if exponent is not None:
        power = node.constant(-exponent, DType.INT32)
        attributes = {"to": dtype.value, "saturate": saturates}
        return node.emit("Pow2ScaleThenCast", [x, power], {**attributes})
    wide = [converted(node, operand, DType.FLOAT32) for operand in (x, scale)]
    quotient = node.emit("Div", [wide[0], _spread(node, x, wide[1])])
    return converted(node, quotient, dtype, saturates=bool(saturates))


def _from_float8(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None, dtype: DType) -> Tensor:
    """The product, rounded once; a power of two is multiplied as the conversion does it."""
    _require_zero(node, zero)
    exponent = exponent_of(node, 1)
    if exponent is not None:
        power = node.constant(exponent, DType.INT32)
        return node.emit("CastThenPow2Scale", [x, power], {"to": dtype.value})
    wide = [converted(node, operand, DType.FLOAT32) for operand in (x, scale)]
    return converted(node, node.emit("Mul", [wide[0], _spread(node, x, wide[1])]), dtype)


def _require_zero(node: Node, zero: Tensor | None) -> None:
    """Floats have no zero point: the operand only says the type."""
    value = None if zero is None else node.known(2)
    if value is not None and (value & 0x7F).any():  # either zero
        raise ModelError(
            f"{node.op_type} to or from eight-bit floats has a zero point that is not 0"
        )


def _spread(node: Node, x: Tensor, scale: Tensor) -> Tensor:
    """``scale`` in a shape that broadcasts to ``x``."""
    shape, dims = x.type.shape, scale.type.shape
    if scale.type.rank <= 1 and scale.type.size == 1:
        return reshaped(node, scale, ())
    axis = normal_axis(node.integer("axis", 1), len(shape))
    if scale.type.rank == 1:
        return reshaped(node, scale, (*dims, *(1 for _ in shape[axis + 1 :])))
    block = node.integer("block_size", 0)
    wide = (*dims[: axis + 1], block, *dims[axis + 1 :])
    each = reshaped(node, scale, (*dims[: axis + 1], 1, *dims[axis + 1 :]))
    blocks = node.emit("Expand", [each], {"shape": wide})
    repeated = reshaped(node, blocks, (*dims[:axis], dims[axis] * block, *dims[axis + 1 :]))
    return emit_slice(node, repeated, [range(size) for size in shape])


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
    if x.type.dtype.is_float8:
        return _from_float8(node, x, scale, zero, dtype)
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
