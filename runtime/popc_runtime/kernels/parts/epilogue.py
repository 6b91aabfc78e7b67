"""Epilogues of a convolution or a matrix product, applied while its block is in the cache.

The order is: add a bias, add a residual, apply an activation (attribute ``activation``, whose own
attributes carry the prefix ``activation_``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array, DType
from popc_runtime.kernels.activation import activation_calls
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.blocking import conversion

__all__ = ["epilogue_calls", "has_epilogue", "in_float32"]

_PREFIX: Final = "activation_"


def has_epilogue(binding: Binding, addends: Sequence[Array | None]) -> bool:
    """True if `epilogue_calls` has anything to do."""
    return bool(binding.text("activation", "")) or any(item is not None for item in addends)


def epilogue_calls(binding: Binding, block: Array, addends: Sequence[Array | None]) -> list[Call]:
    """Calls that add to ``block`` what broadcasts to it and apply the activation, in place."""
    calls: list[Call] = [
        partial(np.add, block, addend, out=block) for addend in addends if addend is not None
    ]
    name = binding.text("activation", "")
    if name:
        attributes = {
            key.removeprefix(_PREFIX): value
            for key, value in binding.attributes.items()
            if key.startswith(_PREFIX)
        }
        mark = binding.scratch.mark()
        calls += activation_calls(name, attributes, block, block, binding.scratch)
        binding.scratch.rewind(mark)
    return calls


def in_float32(kernel: Kernel) -> Kernel:
    """``kernel``, with float16 operands and results passed through float32.

    numpy multiplies float16 matrices without BLAS, and sums of rounded products lose accuracy.
    """

    def wide_kernel(binding: Binding) -> Calls:
        arrays = (*binding.inputs, *binding.outputs)
        if all(array is None or array.dtype != np.float16 for array in arrays):
            return kernel(binding)
        return _through_float32(kernel, binding)

    return wide_kernel


def _through_float32(kernel: Kernel, binding: Binding) -> Calls:
    before: list[Call] = []
    after: list[Call] = []
    inputs, outputs = list(binding.inputs), list(binding.outputs)
    for index, array in enumerate(inputs):
        if array is None or array.dtype != np.float16:
            continue
        if binding.is_constant(index):
            inputs[index] = array.astype(np.float32)
        else:
            inputs[index] = wide = binding.scratch.take(array.shape, np.float32)
            mark = binding.scratch.mark()
            before += conversion(wide, array, binding.scratch)
            binding.scratch.rewind(mark)
    for index, array in enumerate(outputs):
        if array is not None and array.dtype == np.float16:
            outputs[index] = wide = binding.scratch.take(array.shape, np.float32)
            mark = binding.scratch.mark()
            after += conversion(array, wide, binding.scratch)
            binding.scratch.rewind(mark)
    widened = replace(
        binding,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        input_dtypes=tuple(map(_wide, binding.input_dtypes)),
        output_dtypes=tuple(map(_wide, binding.output_dtypes)),
    )
    calls = kernel(widened)
    return (*before, *(calls if isinstance(calls, tuple) else (calls,)), *after)


def _wide(dtype: DType | None) -> DType | None:
    return DType.FLOAT32 if dtype is DType.FLOAT16 else dtype
