"""Gradients of normalisation, and normalisation by statistics of the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import is_whole_float32, tensors
from popc_runtime.native.record import Encoder, Record, float_word
from popc_runtime.native.views import View

__all__ = ["ENCODERS"]


def _norm_grad(centred: int, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """dY, X, scale?, mean?, 1 / deviation? to the gradients of X, scale and (centred) bias."""
    del numbers
    x, axis, scale = binding.input(1), binding.integer("axis"), binding.optional(2)
    length = prod(x.shape[axis:])
    if not is_whole_float32(binding) or (scale is not None and scale.size != length):
        return None
    words = [prod(x.shape[:axis]), length, centred, float_word(binding.number("epsilon"))]
    words += tensors(*[binding.optional(index) for index in range(5)])
    words += tensors(*[binding.optional_output(index) for index in range(3)])
    return Record("NormGrad_f32", tuple(words))


def _batch_norm(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, scale, bias to Y and the batch's mean and variance."""
    del numbers
    if not is_whole_float32(binding):
        return None
    x, scale, bias = (binding.input(index) for index in range(3))
    return _batch("BatchNormTraining_f32", binding, 1, (None, x, scale, bias, None, None))


def _batch_norm_grad(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """dY, X, scale, mean, variance to the gradients of X, scale and bias."""
    del numbers
    if not is_whole_float32(binding):
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
    words += tensors(*[*operands, *(binding.optional_output(index) for index in range(3))])
    return Record(kernel, tuple(words))


def _group_norm_grad(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """dY, X, scale to the gradients of X, scale and bias."""
    del numbers
    if not is_whole_float32(binding):
        return None
    x = binding.input(1)
    groups = binding.integer("num_groups", x.shape[1])
    words = [*x.shape[:2], prod(x.shape[2:]), groups, float_word(binding.number("epsilon"))]
    words += tensors(*[binding.input(index) for index in range(3)])
    words += tensors(*[binding.optional_output(index) for index in range(3)])
    return Record("GroupNormGrad_f32", tuple(words))


ENCODERS: Final[dict[str, Encoder]] = {
    "BatchNormalizationGrad": _batch_norm_grad,
    "BatchNormalizationTraining": _batch_norm,
    "GroupNormalizationGrad": _group_norm_grad,
    "InstanceNormalizationGrad": _group_norm_grad,
    "LayerNormalizationGrad": partial(_norm_grad, 1),
    "RMSNormalizationGrad": partial(_norm_grad, 0),
}
