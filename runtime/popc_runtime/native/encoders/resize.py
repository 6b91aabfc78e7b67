"""Resize and its gradient: elements picked by their offsets, or an axis at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.kernels.parts.resample import ResizedAxis, Taps, nearest_indices, outside
from popc_runtime.kernels.parts.resize_axes import (
    axis_taps,
    gradient_taps,
    in_memory_order,
    processing_order,
    resized_axes,
)
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import has_few_dimensions, packed, tensors
from popc_runtime.native.record import Encoder, Record, is_float32
from popc_runtime.native.views import View, view_of_numbers

__all__ = ["ENCODERS"]


def _resize(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    binding = in_memory_order(binding)
    x, out = binding.input(0), binding.output()
    if not has_few_dimensions(binding) or out.size == 0:
        return None
    axes = resized_axes(binding, x.shape, out.shape)
    transformation = binding.text("coordinate_transformation_mode")
    if any(any(outside(axis, transformation)) for axis in axes):
        return None
    if binding.text("mode") == "nearest":
        return _pick(binding, axes, transformation)
    if not out.is_contiguous:
        return None
    tables = [(number, axis_taps(binding, axes[number])) for number in processing_order(axes)]
    return _resample(binding, tables, [axis.length for axis in axes])


def _pick(
    binding: NativeBinding, axes: Sequence[ResizedAxis], transformation: str
) -> Record | None:
    x, out = binding.input(0), binding.output()
    if out.ndim == 0 or (out.shape[-1] != 1 and out.strides[-1] != out.itemsize):
        return None
    mode = binding.text("nearest_mode")
    offsets = [
        _offsets(nearest_indices(axis, transformation, mode), stride)
        for axis, stride in zip(axes, x.strides, strict=True)
    ]
    return Record("Pick", tensors(x, out, *offsets), (x, out, *offsets))


def _offsets(indices: Sequence[int], stride: int) -> View:
    return view_of_numbers([index * stride for index in indices], DType.INT64)


def _rows(rows: Sequence[Sequence[float]], dtype: DType) -> View:
    flat = [number for row in rows for number in row]
    return view_of_numbers(flat, dtype, (len(rows), -1))


def _resample(
    binding: NativeBinding, tables: Sequence[tuple[int, Taps]], lengths: Sequence[int]
) -> Record | None:
    """Along one axis after another, from operand 0 to the result."""
    wanted = [(number, table) for number, table in tables if not table.keeps(lengths[number])]
    if not is_float32(binding) or not wanted or binding.input(0).size == 0:
        return None
    source, before = packed(binding, 0)
    records = list(before)
    for number, table in wanted:
        shape = (*source.shape[:number], len(table.indices), *source.shape[number + 1 :])
        is_last = number == wanted[-1][0]
        target = binding.output() if is_last else binding.scratch.take(shape, DType.FLOAT32)
        records.append(_axis_record(source, target, number, table))
        source = target
    last = records.pop()
    return Record(last.kernel, last.words, last.keeps_alive, before=tuple(records))


def _axis_record(source: View, target: View, number: int, table: Taps) -> Record:
    indices = _rows(table.indices, DType.INT64)
    weights = _rows(table.weights, DType.FLOAT32)
    shape = source.shape
    sizes = (prod(shape[:number]), shape[number], prod(shape[number + 1 :]))
    operands = (source, indices, weights, target)
    return Record("Resample_f32", (*tensors(*operands), *sizes), operands)


def _resize_grad(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    grad, out = binding.input(0), binding.output()
    if not is_float32(binding) or grad.size == 0 or not out.is_contiguous:
        return None
    tables = gradient_taps(binding)
    return _resample(binding, tables, [-1] * out.ndim) if tables else None


ENCODERS: Final[dict[str, Encoder]] = {"Resize": _resize, "ResizeGrad": _resize_grad}
