"""Bind one kernel to its operands, whatever their element types."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from popc_runtime.format.dtypes import Array, DType
from popc_runtime.kernels.binding import Binding, Call, Calls, Kernel, MoveKernel

__all__ = ["from_bfloat16", "prepare", "to_bfloat16"]


def from_bfloat16(bits: Array) -> Array:
    """float32 array of the values whose bfloat16 bit patterns are ``bits`` (uint16); exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bfloat16(values: Array) -> Array:
    """bfloat16 bit patterns (uint16) of ``values`` (float32), rounded to nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet_nan = (bits >> np.uint32(16)) | np.uint32(0x0040)
    return np.where(np.isnan(values), quiet_nan, rounded).astype(np.uint16)


def prepare(kernel: Kernel, binding: Binding) -> tuple[Call, ...]:
    """The calls of ``kernel`` on ``binding``; bfloat16 operands pass through float32.

    Whole-tensor arithmetic in float32 and one rounding at the end is what ONNX asks of bfloat16
    ops, and it keeps bfloat16 out of every kernel.
    """
    has_bfloat16 = DType.BFLOAT16 in (*binding.input_dtypes, *binding.output_dtypes)
    if not has_bfloat16 or isinstance(kernel, MoveKernel):
        return _as_tuple(kernel(binding))
    widened, before, after = _widen(binding)
    return (*before, *_as_tuple(kernel(widened)), *after)


def _as_tuple(calls: Calls) -> tuple[Call, ...]:
    return calls if isinstance(calls, tuple) else (calls,)


def _widen(binding: Binding) -> tuple[Binding, list[Call], list[Call]]:
    before: list[Call] = []
    after: list[Call] = []
    inputs = list(binding.inputs)
    outputs = list(binding.outputs)
    for index, (array, dtype) in enumerate(zip(inputs, binding.input_dtypes, strict=True)):
        if array is not None and dtype is DType.BFLOAT16:
            inputs[index] = wide = np.empty(array.shape, np.float32)
            load = _loader(array, wide)
            load()  # constants must be right already while binding
            before.append(load)
    for index, (array, dtype) in enumerate(zip(outputs, binding.output_dtypes, strict=True)):
        if array is not None and dtype is DType.BFLOAT16:
            outputs[index] = wide = np.empty(array.shape, np.float32)
            after.append(_storer(wide, array))
    widened = replace(
        binding,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        input_dtypes=tuple(map(_widened, binding.input_dtypes)),
        output_dtypes=tuple(map(_widened, binding.output_dtypes)),
    )
    return widened, before, after


def _widened(dtype: DType | None) -> DType | None:
    return DType.FLOAT32 if dtype is DType.BFLOAT16 else dtype


def _loader(bits: Array, wide: Array) -> Call:
    return lambda: np.copyto(wide, from_bfloat16(bits))


def _storer(wide: Array, bits: Array) -> Call:
    return lambda: np.copyto(bits, to_bfloat16(wide))
