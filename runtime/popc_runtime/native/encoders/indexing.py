"""Elements and rows that are taken by their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import (
    contiguous_copy,
    has_few_dimensions,
    is_indexed_float32,
    is_plain,
    packed,
    tensors,
)
from popc_runtime.native.places import are_indices, has_places, one_row
from popc_runtime.native.record import MAX_RANK, Encoder, Record, tensor_words

__all__ = ["ENCODERS", "gather"]

_FEW: Final = 2  # copies of the result that a copy of the operand may cost
_SMALL: Final = 1 << 13  # elements, that are copied while Python would be asked


def gather(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, indices {axis}."""
    del numbers
    x, indices, out = binding.input(0), binding.input(1), binding.output()
    if (
        out.size == 0
        or x.size == 0
        or x.ndim >= MAX_RANK
        or indices.dtype not in (DType.INT32, DType.INT64)
    ):
        return None
    axis = binding.integer("axis", 0) % x.ndim
    if indices.size == 1 and not x.is_contiguous:
        return one_row(binding, axis)
    before: tuple[Record, ...] = ()
    if not x.is_contiguous and binding.is_constant(0):
        x = contiguous_copy(x)
    elif x.size <= max(_FEW * out.size, _SMALL):
        x, before = packed(binding, 0)
    if not x.is_contiguous:
        return None
    places, more = packed(binding, 1)
    words = (*tensors(x, places, out), axis)
    return Record("Gather", words, (x, places, out), before=(*before, *more))


def _take(axis: int | None, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, indices {axis}, or {batch_dims} if ``axis`` is given."""
    del numbers
    out = binding.output()
    if not has_few_dimensions(binding) or not are_indices(binding, 1):
        return None
    if not has_places(binding.input(0), binding.input(1), out) or not out.is_contiguous:
        return None
    (x, first), (indices, second) = packed(binding, 0), packed(binding, 1)
    along = binding.integer("axis", 0) % x.ndim if axis is None else axis
    batch = 0 if axis is None else binding.integer("batch_dims", 0)
    words = (*tensors(x, indices, out), along, batch, 0)
    return Record("TakePlaces", words, (x, indices, out), before=(*first, *second))


def _one_hot(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Indices, off and on {axis, depth}."""
    del numbers
    out, values = binding.output(), binding.input(1)
    plain = is_plain(binding) and out.is_contiguous and values.is_contiguous
    if not plain or not are_indices(binding, 0) or out.size == 0:
        return None
    axis = binding.integer("axis", -1) % out.ndim
    sizes = (prod(out.shape[:axis]), out.shape[axis], prod(out.shape[axis + 1 :]))
    fits = binding.integer("depth") == sizes[1] and values.size == 2 and values.dtype == out.dtype
    if not fits or binding.input(0).size != sizes[0] * sizes[2]:
        return None
    indices, before = packed(binding, 0)
    words = (*tensors(indices, values, out), *sizes)
    return Record("OneHot", words, (indices, values, out), before=before)


def _gather_grad(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """The gradient [..., *indices, ...]: each index adds its part to the element it names."""
    del numbers
    if not is_indexed_float32(binding, 1) or not binding.input(0).is_contiguous:
        return None
    out, axis = binding.output(), binding.integer("axis")
    words = [word for i in range(2) for word in tensor_words(binding.input(i))]
    sizes = (prod(out.shape[:axis]), out.shape[axis], prod(out.shape[axis + 1 :]))
    return Record("GatherGrad_f32", (*words, *tensor_words(out), *sizes))


ENCODERS: Final[dict[str, Encoder]] = {
    "Gather": gather,
    "GatherElements": partial(_take, None),
    "GatherGrad": _gather_grad,
    "GatherND": partial(_take, -1),
    "OneHot": _one_hot,
}
