"""Elements and rows at places that indices name: taken, put, or combined."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import copied, is_plain, packed, tensors
from popc_runtime.native.record import Encoder, Record
from popc_runtime.native.views import View

__all__ = ["ENCODERS"]

# The numbers are known to csrc/kernels/scatter/places.c.
_COMBINATIONS: Final = {"none": 0, "add": 1, "sum": 1, "mul": 2, "min": 3, "max": 4}
_COMBINED: Final = ("float32", "float64", "int32", "int64")


def _indices(binding: NativeBinding, index: int) -> bool:
    return binding.input(index).dtype in (DType.INT32, DType.INT64)


def _has_places(table: View, indices: View, values: View) -> bool:
    dimensions = table.ndim > 0 and indices.ndim > 0
    return dimensions and all(view.size > 0 for view in (table, indices, values))


def _take(axis: int | None, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, indices {axis}, or {batch_dims} if ``axis`` is given."""
    del numbers
    out = binding.output()
    if not is_plain(binding) or not _indices(binding, 1):
        return None
    if not _has_places(binding.input(0), binding.input(1), out) or not out.is_contiguous:
        return None
    (x, first), (indices, second) = packed(binding, 0), packed(binding, 1)
    along = binding.integer("axis", 0) % x.ndim if axis is None else axis
    batch = 0 if axis is None else binding.integer("batch_dims", 0)
    words = (*tensors(x, indices, out), along, batch, 0)
    return Record("TakePlaces", words, (x, indices, out), before=(*first, *second))


def _put(
    binding: NativeBinding,
    axis: int,
    reduction: str,
    operands: tuple[int, int],
    start: tuple[Record, ...],
) -> Record | None:
    """Updates and indices by the numbers of the ``operands``; ``start`` fills the result."""
    out = binding.output()
    fits = is_plain(binding) and _indices(binding, operands[1]) and out.is_contiguous
    updates, named = (binding.input(operand) for operand in operands)
    if not fits or not _has_places(out, named, updates):
        return None
    if reduction != "none" and out.dtype not in _COMBINED:
        return None
    (values, first), (indices, second) = (packed(binding, operand) for operand in operands)
    words = (*tensors(out, indices, values), axis, 0, _COMBINATIONS[reduction])
    return Record("PutPlaces", words, (out, indices, values), before=(*start, *first, *second))


def _scatter_elements(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Data, indices, updates {axis, reduction}."""
    del numbers
    axis = binding.integer("axis", 0) % max(binding.output().ndim, 1)
    return _put(binding, axis, binding.text("reduction", "none"), (2, 1), copied(binding, 0))


def _scatter_rows(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Data, tuples of indices, updates {reduction}."""
    del numbers
    return _put(binding, -1, binding.text("reduction", "none"), (2, 1), copied(binding, 0))


def _scatter_reduce(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Values, indices, initial values? {axis, reduction}."""
    del numbers
    out, reduction = binding.output(), binding.text("reduction")
    if binding.input(1).ndim != out.ndim or out.size == 0 or out.dtype.itemsize > 8:
        return None
    if binding.optional(2) is not None:
        start = copied(binding, 2)
    elif reduction in ("none", "sum"):
        start = (Record("Fill", (*tensors(out), 0), (out,)),)
    else:
        return None
    return _put(binding, binding.integer("axis") % out.ndim, reduction, (0, 1), start)


def _one_hot(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Indices, off and on {axis, depth}."""
    del numbers
    out, values = binding.output(), binding.input(1)
    plain = is_plain(binding) and out.is_contiguous and values.is_contiguous
    if not plain or not _indices(binding, 0) or out.size == 0:
        return None
    axis = binding.integer("axis", -1) % out.ndim
    sizes = (prod(out.shape[:axis]), out.shape[axis], prod(out.shape[axis + 1 :]))
    fits = binding.integer("depth") == sizes[1] and values.size == 2 and values.dtype == out.dtype
    if not fits or binding.input(0).size != sizes[0] * sizes[2]:
        return None
    indices, before = packed(binding, 0)
    words = (*tensors(indices, values, out), *sizes)
    return Record("OneHot", words, (indices, values, out), before=before)


ENCODERS: Final[dict[str, Encoder]] = {
    "GatherElements": partial(_take, None),
    "GatherND": partial(_take, -1),
    "OneHot": _one_hot,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_rows,
    "ScatterReduce": _scatter_reduce,
}
