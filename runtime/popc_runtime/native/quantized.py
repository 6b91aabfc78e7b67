"""Products of small integers, and what turns floats into them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from popc_runtime.format.dtypes import DType
from popc_runtime.kernels.byte_operands import RESIDUAL
from popc_runtime.native.binding import Binding
from popc_runtime.native.byte_epilogues import byte_epilogue
from popc_runtime.native.forms import map_record
from popc_runtime.native.record import MAX_RANK, Encoder, Record, tensor_words
from popc_runtime.native.views import View, broadcast_to

__all__ = ["ENCODERS", "ByteForm", "byte_product_record"]

_BYTES: Final = (DType.INT8, DType.UINT8)


class ByteForm(IntEnum):
    """How the library multiplies bytes; ``csrc/kernels/products_i8.h`` is the other side.

    All forms give the same results.  A kernel refuses a form that the processor does not have.
    """

    FASTEST = 0
    PORTABLE = 1
    WIDE = 2
    VNNI = 3


def _matmul_integer(binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    """A, B, [zero point of A], [zero point of B], and what follows; shapes as numpy's ``@``."""
    return byte_product_record(binding, ByteForm.FASTEST, numbers)


def byte_product_record(
    binding: Binding, form: ByteForm, numbers: Mapping[str, int]
) -> Record | None:
    """The record of a `MatMulInteger`, computed in a given form.

    Args:
        binding: Its operands: int8 or uint8 matrices, a result of any type.
        form: How bytes are multiplied.
        numbers: Those of the library's kernels.
    """
    a, b, out = binding.input(0), binding.input(1), binding.output()
    if not set(binding.input_dtypes[:2]) <= set(_BYTES) or min(a.ndim, b.ndim) < 2:
        return None
    if 0 in (a.size, b.size) or out.ndim > MAX_RANK or not _has_rows(out):
        return None
    zeros, epilogue = _zeros(binding), byte_epilogue(binding, numbers)
    residual = binding.optional(RESIDUAL)
    if zeros is None or epilogue is None or (residual is not None and not _has_rows(residual)):
        return None
    left, right = (broadcast_to(one, (*out.shape[:-2], *one.shape[-2:])) for one in (a, b))
    words = (
        *tensor_words(left),
        *tensor_words(right, constant=binding.is_constant(1)),
        *tensor_words(out),
        *(word for one in (*zeros, residual) for word in tensor_words(one)),
        int(form),
        *epilogue.words,
    )
    operands = (left, right, out, *zeros, residual, *epilogue.kept)
    kept = tuple(one for one in operands if one is not None)
    return Record("Product_i8", words, kept)


def _has_rows(out: View) -> bool:
    """Whether the rows of a result are contiguous."""
    return out.shape[-1] == 1 or out.strides[-1] == out.itemsize


def _zeros(binding: Binding) -> list[View | None] | None:
    """Zero points of both operands, each one or one for each row or column; ``None`` for others."""
    zeros: list[View | None] = []
    for index, axis in ((2, -2), (3, -1)):
        zero = binding.optional(index)
        if (
            zero is not None
            and zero.size > 1
            and (zero.ndim < -axis or zero.shape[axis] < zero.size)
        ):
            return None
        zeros.append(None if zero is None else zero.reshape(-1))
    return zeros


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
    "MatMulInteger": _matmul_integer,
    "QuantizeLinear": _quantize,
}
