"""Reductions: over one run of axes of contiguous float32, or over anything."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import groupby
from math import prod

from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.record import Encoder, Record, is_float32, tensor_words
from popc_runtime.native.reductions import REDUCTIONS, general_reduction, row_words

__all__ = ["ENCODERS"]

_ROW_REDUCTIONS: Final = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare")


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
        words = row_words(binding, *(size for size, _ in sizes))
        return None if words is None else Record("ChannelSums_f32", words)
    if len(places) != 1:
        return None
    place = places[0]
    outer, inner = (prod(size for size, _ in part) for part in (sizes[:place], sizes[place + 1 :]))
    if kernel == "ReduceSumSquare_f32" and inner != 1:
        return None
    words = row_words(binding, outer, sizes[place][0], inner)
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
    **{name: partial(_reduction, name) for name in REDUCTIONS},
}
