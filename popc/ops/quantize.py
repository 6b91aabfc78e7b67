"""Quantisation: between floats and small integers, by scale and zero point."""

from __future__ import annotations

from typing import Final

from popc.ir import Shape, TensorType
from popc.ir.attributes import integer
from popc.ops.infer import attribute_dtype, broadcast_shapes, normal_axis, operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]

_SMALL: Final = frozenset({DType.INT8, DType.UINT8, DType.INT16, DType.UINT16})
_QUANTIZED: Final = _SMALL | {DType.INT32}


def _quantize(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    x = operand(inputs, 0)
    dtype = _small_dtype(attributes)
    _check_parameters(x.shape, inputs, dtype, attributes)
    return (TensorType(dtype, x.shape),)


def _dequantize(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    x = operand(inputs, 0)
    if x.dtype not in _QUANTIZED:
        raise ModelError(f"cannot dequantise {x.dtype}: it must be one of {_listed(_QUANTIZED)}")
    dtype = attribute_dtype(attributes, "dtype")
    if not dtype.is_float:
        raise ModelError(f"the result of dequantising must be of a float type, not {dtype}")
    _check_parameters(x.shape, inputs, x.dtype, attributes)
    return (TensorType(dtype, x.shape),)


def _requantize(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    x, multiplier = operand(inputs, 0), operand(inputs, 1)
    dtype = _small_dtype(attributes)
    if broadcast_shapes([x.shape, multiplier.shape]) != x.shape:
        raise ModelError(
            f"a multiplier of shape {list(multiplier.shape)} does not fit {list(x.shape)}"
        )
    zero = inputs[2] if len(inputs) > 2 else None
    if zero is not None and (zero.dtype is not dtype or zero.size != 1):
        raise ModelError(f"the zero point must be one {dtype}, not {zero}")
    return (TensorType(dtype, x.shape),)


def _dynamic_quantize(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    del attributes
    x = operand(inputs, 0)
    if x.dtype is not DType.FLOAT32:
        raise ModelError(f"the input must be float32, not {x.dtype}")
    return (
        TensorType(DType.UINT8, x.shape),
        TensorType(DType.FLOAT32, ()),
        TensorType(DType.UINT8, ()),
    )


def _small_dtype(attributes: Attributes) -> DType:
    dtype = attribute_dtype(attributes, "dtype")
    if dtype not in _SMALL:
        raise ModelError(f"cannot quantise to {dtype}: it must be one of {_listed(_SMALL)}")
    return dtype


def _listed(dtypes: frozenset[DType]) -> str:
    return ", ".join(sorted(dtypes))


def _check_parameters(
    shape: Shape, inputs: OperandTypes, quantized: DType, attributes: Attributes
) -> None:
    scale = operand(inputs, 1)
    if not scale.dtype.is_float:
        raise ModelError(f"the scale must be of a float type, not {scale.dtype}")
    _check_scale_shape(shape, scale.shape, attributes)
    zero = inputs[2] if len(inputs) > 2 else None
    if zero is None:
        return
    if zero.dtype is not quantized:
        raise ModelError(f"the zero point is {zero.dtype} but the quantised type is {quantized}")
    if zero.shape != scale.shape and (zero.size, scale.size) != (1, 1):
        raise ModelError(f"scale {list(scale.shape)} and zero point {list(zero.shape)} differ")


def _check_scale_shape(shape: Shape, scale: Shape, attributes: Attributes) -> None:
    """One scale for the tensor, one per index of ``axis``, or one per block along ``axis``."""
    if scale in ((), (1,)):
        return
    axis = normal_axis(integer(attributes, "axis"), len(shape))
    block = integer(attributes, "block_size", 0)
    if block:
        expected = (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
    else:
        expected = (shape[axis],)
    if scale != expected:
        what = f"axis {axis}" + (f" in blocks of {block}" if block else "")
        raise ModelError(
            f"a scale of shape {list(scale)} does not fit {what} of {list(shape)}: "
            f"it must be {list(expected)}"
        )


OPS: Final[dict[str, OpSpec]] = {
    "DequantizeLinear": OpSpec(_dequantize, strided_output=True),
    "DynamicQuantizeLinear": OpSpec(_dynamic_quantize),
    "QuantizeLinear": OpSpec(_quantize, strided_output=True),
    # y = saturate(round(x * multiplier) + zero point): what follows an integer product
    "Requantize": OpSpec(_requantize, strided_output=True),
}
