"""Softmax, normalisation and reductions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import groupby
from math import prod

from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import is_plain, packed, sizes_along, tensors
from popc_runtime.native.encoders.reduce import REDUCTIONS, general_reduction
from popc_runtime.native.record import Encoder, Record, float_word, is_float32, tensor_words
from popc_runtime.native.views import View

__all__ = ["ENCODERS"]

_ROW_REDUCTIONS: Final = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare")


def _rows(binding: NativeBinding, rows: int, length: int, inner: int = 1) -> tuple[int, ...] | None:
    """The words of an operation on [rows, length, inner]; ``None`` if memory is not like that."""
    x, out = binding.input(0), binding.output()
    if not is_float32(binding) or x.size == 0 or not x.is_contiguous:
        return None
    return (*tensor_words(x), *tensor_words(out), rows, length, inner)


def _softmax(kernel: str, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    if not is_float32(binding) or not is_plain(binding) or binding.input(0).size == 0:
        return None
    x, before = packed(binding, 0)
    sizes = sizes_along(x.shape, binding.integer("axis"))
    return Record(kernel, (*tensors(x, binding.output()), *sizes), (x,), before=before)


def _normalization(
    kernel: str, binding: NativeBinding, numbers: Mapping[str, int]
) -> Record | None:
    del numbers
    x = binding.input(0)
    axis = binding.integer("axis") % x.ndim
    length = prod(x.shape[axis:])
    words = _rows(binding, x.size // max(length, 1), length)
    scale, bias = (_vector(binding.optional(index), x.shape[axis:]) for index in (1, 2))
    wanted = [binding.optional(index) is not None for index in (1, 2)]
    if words is None or wanted != [scale is not None, bias is not None]:
        return None
    vectors = (scale, bias, binding.optional_output(1), binding.optional_output(2))
    for array in vectors:
        words += tensor_words(array)
    return Record(kernel, (*words, float_word(binding.number("epsilon"))))


def _vector(array: View | None, shape: tuple[int, ...]) -> View | None:
    """``array`` if it has one element for each of a row."""
    if array is None or not array.is_contiguous:
        return None
    return array if array.size == prod(shape) and array.shape[-len(shape) :] == shape else None


def _reduction(opcode: str, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """A kernel of its own for one run of axes of contiguous float32, or that for anything."""
    del numbers
    own = _row_reduction(f"{opcode}_f32", binding) if opcode in _ROW_REDUCTIONS else None
    return own or general_reduction(opcode, binding)


def _row_reduction(kernel: str, binding: NativeBinding) -> Record | None:
    x, axes = binding.input(0), binding.integers("axes")
    over_pixels = _over_pixels(kernel, binding)
    if over_pixels is not None:
        return over_pixels
    kinds = [(size, axis in axes) for axis, size in enumerate(x.shape) if size != 1]
    runs = groupby(kinds, key=lambda kind: kind[1])
    sizes = [(prod(size for size, _ in run), reduced) for reduced, run in runs]
    places = [number for number, (_, reduced) in enumerate(sizes) if reduced]
    if places == [0, 2] and len(sizes) == 3 and kernel == "ReduceSum_f32":
        words = _rows(binding, *(size for size, _ in sizes))
        return None if words is None else Record("ChannelSums_f32", words)
    if len(places) != 1:
        return None
    place = places[0]
    outer, inner = (prod(size for size, _ in part) for part in (sizes[:place], sizes[place + 1 :]))
    if kernel == "ReduceSumSquare_f32" and inner != 1:
        return None
    words = _rows(binding, outer, sizes[place][0], inner)
    return None if words is None else Record(kernel, words)


def _over_pixels(kernel: str, binding: NativeBinding) -> Record | None:
    """Over all axes of the pixels of a channels-last tensor, which lie before its channels."""
    x, out, axes = binding.input(0), binding.output(), binding.integers("axes")
    spatial = tuple(range(2, x.ndim))
    if not spatial or tuple(sorted(axis % x.ndim for axis in axes)) != spatial:
        return None
    if not is_float32(binding) or x.size == 0 or x.is_contiguous:
        return None
    pixels = x.transpose(0, *spatial, 1)
    plain = pixels.is_contiguous and out.is_contiguous
    if not plain or (kernel == "ReduceSumSquare_f32" and x.shape[1] != 1):
        return None
    sizes = (x.shape[0], prod(x.shape[2:]), x.shape[1])
    return Record(kernel, (*tensor_words(pixels), *tensor_words(out), *sizes))


ENCODERS: Final[dict[str, Encoder]] = {
    "LayerNormalization": partial(_normalization, "LayerNorm_f32"),
    "LogSoftmax": partial(_softmax, "LogSoftmax_f32"),
    "RMSNormalization": partial(_normalization, "RmsNorm_f32"),
    "Softmax": partial(_softmax, "Softmax_f32"),
    **{name: partial(_reduction, name) for name in REDUCTIONS},
}
