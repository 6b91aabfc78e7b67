"""Rows that move to where numbers say, and triangles."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import copied, fill_record, packed, tensors
from popc_runtime.native.record import MAX_RANK, Encoder, Record
from popc_runtime.native.views import View, filled

__all__ = ["ENCODERS"]


def _triangle(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, number of the diagonal? {upper}: copied, then cleared on one side of it."""
    del numbers
    x, out, diagonal = binding.input(0), binding.output(), binding.optional(1)
    if x.size == 0 or x.ndim >= MAX_RANK or not out.is_contiguous:
        return None
    if diagonal is not None and diagonal.dtype is not DType.INT64:
        return None
    before = copied(binding, 0)
    words = (*tensors(out, diagonal), binding.integer("upper", 1))
    return Record("ClearTriangle", words, (x, out), before=before)


def _is_movable(*arrays: View) -> bool:
    return all(view.size > 0 and view.ndim < MAX_RANK for view in arrays)


def _are_numbers(*arrays: View | None) -> bool:
    return all(
        view is None or (view.dtype in (DType.INT32, DType.INT64) and view.is_contiguous)
        for view in arrays
    )


def _reverse(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, lengths {batch_axis}."""
    del numbers
    lengths, out = binding.input(1), binding.output()
    if not _is_movable(out) or not _are_numbers(lengths) or not out.is_contiguous:
        return None
    x, before = packed(binding, 0)
    words = (*tensors(x, lengths, out), binding.integer("batch_axis", 1))
    return Record("ReverseSequence", words, (x, lengths, out), before=before)


def _store_steps(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Cache, update, starts? {axis, mode}."""
    del numbers
    out, starts = binding.output(), binding.optional(2)
    movable = _is_movable(out, binding.input(1)) and out.is_contiguous
    if not movable or not _are_numbers(starts):
        return None
    axis = binding.integer("axis", -2) % out.ndim
    update, before = packed(binding, 1)
    sizes = (out.shape[0], prod(out.shape[1:axis]), out.shape[axis], update.shape[axis])
    circular = int(binding.text("mode", "linear") == "circular")
    words = (*tensors(out, update, starts), *sizes, out.strides[axis], circular)
    return Record("StoreSteps", words, (out, update), before=(*copied(binding, 0), *before))


def _copy_runs(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Source, destination, counts, rows that are read, rows that are written {zero_unused}."""
    del numbers
    out, runs = binding.output(), [binding.input(index) for index in range(2, 5)]
    movable = _is_movable(binding.input(0), out) and out.is_contiguous
    if not movable or not _are_numbers(*runs):
        return None
    source, before = packed(binding, 0)
    if binding.integer("zero_unused"):
        start: tuple[Record, ...] = (Record("Fill", (*tensors(out), 0), (out,)),)
    else:
        start = copied(binding, 1)
    words = tensors(source, out, *runs)
    return Record("CopyRuns", words, (source, out, *runs), before=(*before, *start))


def _fill(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """All elements of the result {value}."""
    del numbers
    out, dtype, value = binding.output(), binding.output_dtypes[0], binding.number("value")
    if out.size == 0 or not out.is_contiguous or dtype is None or dtype is DType.BFLOAT16:
        return None
    one = filled((), dtype, value if dtype.is_float else int(value))
    return fill_record(out, one.memory().tobytes())


ENCODERS: Final[dict[str, Encoder]] = {
    "Fill": _fill,
    "ReverseSequence": _reverse,
    "SequenceSlice": _copy_runs,
    "TensorScatter": _store_steps,
    "Trilu": _triangle,
}
