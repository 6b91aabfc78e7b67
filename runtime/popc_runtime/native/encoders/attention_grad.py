"""The gradient of attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import DType
from popc_runtime.kernels.parts.attention_mask import attention_mask
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.record import Encoder, Record, float_word, tensor_words
from popc_runtime.native.views import View, as_view

__all__ = ["ENCODERS"]


def _attention_grad(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Operands: those of the attention, then the gradient of its result, and the result."""
    del numbers
    q, k, v, given, out = (binding.input(index) for index in (0, 1, 2, 5, 6))
    outputs = [binding.output(index) for index in range(3)]
    arrays = (q, k, v, given, out, *outputs)
    if not all(array.dtype is DType.FLOAT32 and array.size for array in arrays):
        return None
    if binding.number("softcap", 0.0) or binding.integer("mask_grad", 0):
        return None
    shape = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    known, bias = _bias(binding, shape)
    if not known:
        return None
    if binding.integer("heads_last", 0):
        given, out = (array.transpose(0, 2, 1, 3) for array in (given, out))
    words: list[int] = []
    for array in (q, k, v, given, out, *outputs, bias):
        words += tensor_words(array)
    views = () if bias is None else (bias,)
    return Record("AttentionGrad_f32", (*words, float_word(binding.number("scale"))), views)


def _bias(binding: NativeBinding, shape: tuple[int, int, int, int]) -> tuple[bool, View | None]:
    """The addend of the scores, if that needs no work when the program runs."""
    mask, lengths = binding.optional(3), binding.optional(4)
    found, calls = attention_mask(binding.for_numpy(), shape, np.dtype(np.float32))
    if not calls or found.bias is None:
        return True, as_view(found.bias)
    given = (
        mask is not None and lengths is None and np.may_share_memory(found.bias, np.asarray(mask))
    )
    return given, as_view(found.bias)


ENCODERS: Final[dict[str, Encoder]] = {"AttentionGrad": _attention_grad}
