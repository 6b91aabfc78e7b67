"""Encoders that turn floats into small integers, and back."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import packed, tensors
from popc_runtime.native.forms import map_record
from popc_runtime.native.record import MAX_RANK, Encoder, Record

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


_REQUANTIZE: Final[dict[DType | None, str]] = {
    DType.INT8: "Requantize_i8",
    DType.UINT8: "Requantize_u8",
}


def _quantize(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """x, scale, [zero point]: constants that serve the whole tensor."""
    del numbers
    kernel = _QUANTIZE.get(binding.output_dtypes[0])
    if kernel is None or binding.input_dtypes[:2] != (DType.FLOAT32, DType.FLOAT32):
        return None
    return _scaled(kernel, binding)


def _dequantize(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """x, scale, [zero point]: constants that serve the whole tensor."""
    del numbers
    kernel = _DEQUANTIZE.get(binding.input_dtypes[0])
    types = (binding.input_dtypes[1], binding.output_dtypes[0])
    if kernel is None or types != (DType.FLOAT32, DType.FLOAT32):
        return None
    zero = binding.optional(2)
    if binding.input_dtypes[0] is DType.INT32 and zero is not None:
        return None  # the difference is exact only in integers
    return _scaled(kernel, binding)


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


def _scaled(kernel: str, binding: NativeBinding) -> Record | None:
    """A map whose parameters are operands 1 and 2: a scale and a zero point, if there is one."""
    x, scale, zero, out = binding.input(0), binding.input(1), binding.optional(2), binding.output()
    known = binding.is_constant(1) and (zero is None or binding.is_constant(2))
    if not known or scale.size != 1 or (zero is not None and zero.size != 1):
        return None
    if out.ndim > MAX_RANK or out.size == 0:
        return None
    offset = 0.0 if zero is None else float(zero.item())
    return map_record(kernel, out, [x], (float(scale.item()), offset))


ENCODERS: Final[dict[str, Encoder]] = {
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "QuantizeLinear": _quantize,
    "Requantize": _requantize,
}
