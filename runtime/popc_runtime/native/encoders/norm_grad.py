"""Gradients of normalisation and of softmax, and normalisation by statistics of the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Final

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.frozen import replace
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import move_record
from popc_runtime.native.record import (
    MAX_RANK,
    Encoder,
    Record,
    float_word,
    is_float32,
    tensor_words,
)
from popc_runtime.native.views import View

__all__ = ["ENCODERS"]


def _is_plain(binding: NativeBinding) -> bool:
    """True if all operands and results are float32, contiguous and not empty."""
    arrays = (*binding.inputs, *binding.outputs)
    plain = all(view is None or (view.is_contiguous and view.size) for view in arrays)
    return plain and is_float32(binding)


def _words(arrays: Sequence[View | None]) -> list[int]:
    return [word for array in arrays for word in tensor_words(array)]


def _norm_grad(centred: int, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """dY, X, scale?, mean?, 1 / deviation? to the gradients of X, scale and (centred) bias."""
    del numbers
    x, axis, scale = binding.input(1), binding.integer("axis"), binding.optional(2)
    length = prod(x.shape[axis:])
    if not _is_plain(binding) or (scale is not None and scale.size != length):
        return None
    words = [prod(x.shape[:axis]), length, centred, float_word(binding.number("epsilon"))]
    words += _words([binding.optional(index) for index in range(5)])
    words += _words([binding.optional_output(index) for index in range(3)])
    return Record("NormGrad_f32", tuple(words))


def _batch_norm(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, scale, bias to Y and the batch's mean and variance."""
    del numbers
    if not _is_plain(binding):
        return None
    x, scale, bias = (binding.input(index) for index in range(3))
    return _batch("BatchNormTraining_f32", binding, 1, (None, x, scale, bias, None, None))


def _batch_norm_grad(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """dY, X, scale, mean, variance to the gradients of X, scale and bias."""
    del numbers
    if not _is_plain(binding):
        return None
    dy, x, scale, mean, variance = (binding.input(index) for index in range(5))
    training = binding.integer("training_mode")
    operands = (dy, x, scale, None, mean, variance)
    return _batch("BatchNormGrad_f32", binding, training, operands)


def _batch(
    kernel: str, binding: NativeBinding, training: int, operands: Sequence[View | None]
) -> Record:
    shape = next(array.shape for array in operands[1:2] if array is not None)
    words = [*shape[:2], prod(shape[2:]), training, float_word(binding.number("epsilon"))]
    words += _words([*operands, *(binding.optional_output(index) for index in range(3))])
    return Record(kernel, tuple(words))


def _group_norm_grad(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """dY, X, scale to the gradients of X, scale and bias."""
    del numbers
    if not _is_plain(binding):
        return None
    x = binding.input(1)
    groups = binding.integer("num_groups", x.shape[1])
    words = [*x.shape[:2], prod(x.shape[2:]), groups, float_word(binding.number("epsilon"))]
    words += _words([binding.input(index) for index in range(3)])
    words += _words([binding.optional_output(index) for index in range(3)])
    return Record("GroupNormGrad_f32", tuple(words))


def _softmax_grad(
    logarithm: int, binding: NativeBinding, numbers: Mapping[str, int]
) -> Record | None:
    """The gradient of the result, and the result; copies are made if the axis is not the last."""
    del numbers
    out, given = binding.output(), [binding.input(0), binding.input(1)]
    if not _is_plain(binding) or out.ndim >= MAX_RANK:
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
    return Record("SoftmaxGrad_f32", (*_words(arrays), prod(outer), length, logarithm))


ENCODERS: Final[dict[str, Encoder]] = {
    "BatchNormalizationGrad": _batch_norm_grad,
    "BatchNormalizationTraining": _batch_norm,
    "GroupNormalizationGrad": _group_norm_grad,
    "InstanceNormalizationGrad": _group_norm_grad,
    "LayerNormalizationGrad": partial(_norm_grad, 1),
    "LogSoftmaxGrad": partial(_softmax_grad, 1),
    "RMSNormalizationGrad": partial(_norm_grad, 0),
    "SoftmaxGrad": partial(_softmax_grad, 0),
}
