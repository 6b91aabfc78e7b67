"""Softmax and its gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.frozen import replace
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import (
    is_plain,
    is_whole_float32,
    move_record,
    packed,
    sizes_along,
    tensors,
)
from popc_runtime.native.record import MAX_RANK, Encoder, Record, is_float32
from popc_runtime.native.views import View

__all__ = ["ENCODERS"]


def _softmax(kernel: str, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    if not is_float32(binding) or not is_plain(binding) or binding.input(0).size == 0:
        return None
    x, before = packed(binding, 0)
    sizes = sizes_along(x.shape, binding.integer("axis"))
    return Record(kernel, (*tensors(x, binding.output()), *sizes), (x,), before=before)


def _softmax_grad(
    logarithm: int, binding: NativeBinding, numbers: Mapping[str, int]
) -> Record | None:
    """The gradient of the result, and the result; copies are made if the axis is not the last."""
    del numbers
    out, given = binding.output(), [binding.input(0), binding.input(1)]
    if not is_whole_float32(binding) or out.ndim >= MAX_RANK:
        return None
    rank, axis = out.ndim, binding.integer("axis") % out.ndim
    if axis == rank - 1:
        return _softmax_record(logarithm, (*given, out))
    order = (*range(axis), *range(axis + 1, rank), axis)
    far = [view.transpose(*order) for view in (*given, out)]
    near = [binding.scratch.take(view.shape, DType.FLOAT32) for view in far]
    copies = [move_record(*pair) for pair in zip(near[:2], far[:2], strict=True)]
    record = _softmax_record(logarithm, near)
    return replace(record, before=tuple(copies), after=(move_record(far[2], near[2]),))


def _softmax_record(logarithm: int, arrays: Sequence[View]) -> Record:
    """The gradient of the result, the result, and what is wanted, row by row."""
    *outer, length = arrays[-1].shape
    return Record("SoftmaxGrad_f32", (*tensors(*arrays), prod(outer), length, logarithm))


ENCODERS: Final[dict[str, Encoder]] = {
    "LogSoftmax": partial(_softmax, "LogSoftmax_f32"),
    "LogSoftmaxGrad": partial(_softmax_grad, 1),
    "Softmax": partial(_softmax, "Softmax_f32"),
    "SoftmaxGrad": partial(_softmax_grad, 0),
}
