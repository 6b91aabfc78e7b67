"""Bind one kernel to its operands, whatever their element types."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from popc_runtime.format.dtypes import Array, DType
from popc_runtime.kernels.core.binding import (
    Binding,
    Call,
    Calls,
    CollectiveKernel,
    Kernel,
    MoveKernel,
    Scratch,
)
from popc_runtime.kernels.core.blocking import conversion
from popc_runtime.kernels.core.bound import guarded, plain_calls, while_binding
from popc_runtime.kernels.core.rounding import rounding_calls
from popc_runtime.kernels.core.rounding_mode import Rounding
from popc_runtime.kernels.core.stored import to_bfloat16

if TYPE_CHECKING:
    pass

__all__ = ["prepare", "prepare_together"]


def prepare(kernel: Kernel, binding: Binding) -> tuple[Call, ...]:
    """The calls of ``kernel`` on ``binding``; bfloat16 operands pass through float32.

    Whole-tensor arithmetic in float32 and one rounding at the end is what ONNX asks of bfloat16
    ops, and it keeps bfloat16 out of every kernel.  The same is done with float16 where results are
    not to be rounded to nearest: see `Rounding`.
    """
    with while_binding():
        return plain_calls(_prepared(kernel, guarded(binding)))


def prepare_together(kernel: CollectiveKernel, bindings: Sequence[Binding]) -> tuple[Call, ...]:
    """The calls of ``kernel`` on the operands of all replicas."""
    with while_binding():
        return plain_calls(_as_tuple(kernel.together([guarded(binding) for binding in bindings])))


def _prepared(kernel: Kernel, binding: Binding) -> tuple[Call, ...]:
    rounding = Rounding.of(binding.attributes)
    widened = {DType.BFLOAT16, DType.FLOAT16} if rounding else {DType.BFLOAT16}
    dtypes = (*binding.input_dtypes, *binding.output_dtypes)
    if widened.isdisjoint(dtypes) or isinstance(kernel, MoveKernel | CollectiveKernel):
        return _as_tuple(kernel(binding))
    return _through_float32(kernel, binding, widened, rounding)


def _as_tuple(calls: Calls) -> tuple[Call, ...]:
    return calls if isinstance(calls, tuple) else (calls,)


def _through_float32(
    kernel: Kernel, binding: Binding, widened: AbstractSet[DType], rounding: Rounding
) -> tuple[Call, ...]:
    """The calls of ``kernel`` on float32 copies of the operands of the types ``widened``."""
    scratch = binding.scratch
    before: list[Call] = []
    inputs, outputs = list(binding.inputs), list(binding.outputs)
    for index, (array, dtype) in enumerate(zip(inputs, binding.input_dtypes, strict=True)):
        if array is None or dtype not in widened:
            continue
        constant = binding.is_constant(index)
        inputs[index] = wide = _space(scratch, array.shape, constant=constant)
        calls = _load(wide, array, scratch)
        for call in calls:  # kernels look at constants while they are bound
            call()
        if not constant:
            before += calls
    narrowed: list[tuple[Array, Array, DType]] = []
    for index, (array, dtype) in enumerate(zip(outputs, binding.output_dtypes, strict=True)):
        if array is not None and dtype is not None and dtype in widened:
            outputs[index] = wide = scratch.take(array.shape, np.float32)
            narrowed.append((array, wide, dtype))
    mark = scratch.mark()
    calls = _as_tuple(
        kernel(
            replace(
                binding,
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                input_dtypes=tuple(_wide(dtype, widened) for dtype in binding.input_dtypes),
                output_dtypes=tuple(_wide(dtype, widened) for dtype in binding.output_dtypes),
            )
        )
    )
    after: list[Call] = []
    for array, wide, dtype in narrowed:
        scratch.rewind(mark)
        after += rounding_calls(rounding, wide, dtype, scratch, binding.random)
        scratch.rewind(mark)
        after += _store(array, wide, dtype, scratch)
    return (*before, *calls, *after)


def _space(scratch: Scratch, shape: tuple[int, ...], *, constant: bool) -> Array:
    """A float32 array; what is in scratch is lost until the next run."""
    return np.empty(shape, np.float32) if constant else scratch.take(shape, np.float32)


def _wide(dtype: DType | None, widened: AbstractSet[DType]) -> DType | None:
    return DType.FLOAT32 if dtype in widened else dtype


def _load(wide: Array, array: Array, scratch: Scratch) -> tuple[Call, ...]:
    if array.dtype == np.float16:
        mark = scratch.mark()
        calls = conversion(wide, array, scratch)
        scratch.rewind(mark)
        return calls
    bits = wide.view(np.uint32)
    return (
        partial(np.copyto, bits, array),
        partial(np.left_shift, bits, np.asarray(16, np.uint32), out=bits),
    )


def _store(array: Array, wide: Array, dtype: DType, scratch: Scratch) -> tuple[Call, ...]:
    if dtype is DType.FLOAT16:
        return conversion(array, wide, scratch)
    return (lambda: np.copyto(array, to_bfloat16(wide)),)
