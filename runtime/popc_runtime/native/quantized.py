"""What turns floats into small integers, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc_runtime.format.dtypes import DType
from popc_runtime.native.binding import Binding
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


def _quantize(binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    """x, scale, [zero point]: constants that serve the whole tensor."""
    del numbers
    kernel = _QUANTIZE.get(binding.output_dtypes[0])
    if kernel is None or binding.input_dtypes[:2] != (DType.FLOAT32, DType.FLOAT32):
        return None
    return _scaled(kernel, binding)


def _dequantize(binding: Binding, numbers: Mapping[str, int]) -> Record | None:
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


def _scaled(kernel: str, binding: Binding) -> Record | None:
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
    "QuantizeLinear": _quantize,
}
