"""Encoders that turn floats into small integers, and back."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import packed, tensors
from popc_runtime.native.forms import map_record
from popc_runtime.native.record import MAX_RANK, Encoder, Record
from popc_runtime.native.views import View, filled

__all__ = ["ENCODERS"]

_QUANTIZE: Final[dict[DType | None, str]] = {
    DType.INT8: "Quantize_i8",
    DType.UINT8: "Quantize_u8",
}
_DEQUANTIZE: Final[dict[DType | None, str]] = {
    DType.INT8: "Dequantize_i8",
    DType.UINT8: "Dequantize_u8",
    DType.INT32: "Dequantize_i32",
}
_QUANTIZE_BY: Final[dict[DType | None, str]] = {
    DType.INT8: "QuantizeBy_i8",
    DType.UINT8: "QuantizeBy_u8",
    DType.INT16: "QuantizeBy_i16",
    DType.UINT16: "QuantizeBy_u16",
}
_DEQUANTIZED: Final = (*_QUANTIZE_BY, DType.INT32)
_REQUANTIZE: Final[dict[DType | None, str]] = {
    DType.INT8: "Requantize_i8",
    DType.UINT8: "Requantize_u8",
}


def _quantize(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """x, scale, [zero point]."""
    del numbers
    dtype = binding.output_dtypes[0]
    if binding.input_dtypes[:2] != (DType.FLOAT32, DType.FLOAT32):
        return None
    return _scaled(_QUANTIZE.get(dtype), binding) or _scaled_by(_QUANTIZE_BY.get(dtype), binding)


def _dequantize(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """x, scale, [zero point]."""
    del numbers
    dtype = binding.input_dtypes[0]
    types = (binding.input_dtypes[1], binding.output_dtypes[0])
    if types != (DType.FLOAT32, DType.FLOAT32):
        return None
    if dtype is DType.INT32 and binding.optional(2) is not None:
        return None  # the difference is exact only in integers
    kernel = "DequantizeBy_f32" if dtype in _DEQUANTIZED else None
    return _scaled(_DEQUANTIZE.get(dtype), binding) or _scaled_by(kernel, binding)


def _dynamic_quantize(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """x, which decides about scale and zero point; all three are results."""
    del numbers
    x, y = binding.input(0), binding.output()
    if not y.is_contiguous or x.size == 0 or x.ndim > MAX_RANK:
        return None
    x, before = packed(binding, 0)
    operands = (x, y, binding.optional_output(1), binding.optional_output(2))
    return Record("DynamicQuantize_u8", tensors(*operands), operands, before=before)


def _requantize(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """x, a multiplier that broadcasts to it, [zero point]: one constant."""
    del numbers
    kernel = _REQUANTIZE.get(binding.output_dtypes[0])
    x, multiplier, zero = binding.input(0), binding.input(1), binding.optional(2)
    out, types = binding.output(), (DType.INT32, DType.FLOAT32)
    known = zero is None or (binding.is_constant(2) and zero.size == 1)
    if kernel is None or not known or binding.input_dtypes[0] not in types:
        return None
    if binding.input_dtypes[1] is not DType.FLOAT32 or out.ndim > MAX_RANK or out.size == 0:
        return None
    offset = 0.0 if zero is None else float(zero.item())
    return map_record(kernel, out, [x, multiplier], (offset,))


def _scaled(kernel: str | None, binding: NativeBinding) -> Record | None:
    """A map whose parameters are operands 1 and 2, constants that serve the whole tensor."""
    x, scale, zero, out = binding.input(0), binding.input(1), binding.optional(2), binding.output()
    known = binding.is_constant(1) and (zero is None or binding.is_constant(2))
    if kernel is None or not known or scale.size != 1 or (zero is not None and zero.size != 1):
        return None
    if out.ndim > MAX_RANK or out.size == 0:
        return None
    offset = 0.0 if zero is None else float(zero.item())
    return map_record(kernel, out, [x], (float(scale.item()), offset))


def _scaled_by(kernel: str | None, binding: NativeBinding) -> Record | None:
    """A map of three operands: x, scales and zero points, which may serve places of an axis."""
    x, out, zero = binding.input(0), binding.output(), binding.optional(2)
    if kernel is None or binding.integer("block_size", 0) or out.ndim > MAX_RANK or out.size == 0:
        return None
    axis = binding.integer("axis", x.ndim - 1)
    scales = _along(binding.input(1), axis, x.ndim)
    zeros = filled((), DType.FLOAT32, 0.0) if zero is None else _along(zero, axis, x.ndim)
    return map_record(kernel, out, [x, scales, zeros])


def _along(parameter: View, axis: int, rank: int) -> View:
    """A 1-D parameter as one that broadcasts along ``axis``; others broadcast as they are."""
    if parameter.size == 1:
        return parameter.reshape(())
    return parameter.reshape(-1, *(1,) * (rank - 1 - axis)) if parameter.ndim == 1 else parameter


ENCODERS: Final[dict[str, Encoder]] = {
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "QuantizeLinear": _quantize,
    "Requantize": _requantize,
}
