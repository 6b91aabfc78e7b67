"""Resize: an axis at a time, by gathering (nearest) or by narrow matrix products (the rest)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.copying import as_contiguous
from popc_runtime.kernels.parts.banded import replaced, resampled
from popc_runtime.kernels.parts.resample import ResizedAxis, nearest_indices, outside
from popc_runtime.kernels.parts.resize_axes import (
    axis_taps,
    in_memory_order,
    processing_order,
    resized_axes,
)

__all__ = ["KERNELS"]


def _resize(binding: Binding) -> Calls:
    if binding.output().size == 0:
        return ()
    binding = in_memory_order(binding)
    axes = resized_axes(binding, binding.input(0).shape, binding.output().shape)
    nearest = binding.text("mode") == "nearest"
    calls = _gather(binding, axes) if nearest else _interpolate(binding, axes)
    return (*calls, *_extrapolate(binding, axes))


def _extrapolate(binding: Binding, axes: Sequence[ResizedAxis]) -> list[Call]:
    """Overwrite what lies outside the region's source: a run at either end of an axis."""
    out, transformation = binding.output(), binding.text("coordinate_transformation_mode")
    value = out.dtype.type(binding.number("extrapolation_value", 0.0))
    calls: list[Call] = []
    for number, axis in enumerate(axes):
        mask = np.array(outside(axis, transformation), np.int8)
        edges = np.flatnonzero(np.diff(mask, prepend=0, append=0))
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            calls.append(partial(np.copyto, _slab(out, number, slice(start, stop)), value))
    return calls


def _slab(array: Array, axis: int, part: slice) -> Array:
    return array[(slice(None),) * axis + (part,)]


# -- nearest ---------------------------------------------------------------------------------------


def _gather(binding: Binding, axes: Sequence[ResizedAxis]) -> list[Call]:
    transformation = binding.text("coordinate_transformation_mode")
    nearest_mode = binding.text("nearest_mode")
    found = [nearest_indices(axis, transformation, nearest_mode) for axis in axes]
    indices = [np.array(places, np.intp) for places in found]
    factors = [_repetition(index, axis) for index, axis in zip(indices, axes, strict=True)]
    if all(factors) and (repeat := _repeat(binding, factors)) is not None:
        return [repeat]
    return _take_axes(binding, axes, indices)


def _repetition(indices: Array, axis: ResizedAxis) -> int:
    """The repetitions of each element of the axis; 0 if not all are repeated equally."""
    factor = axis.resized // axis.length
    repeated = np.repeat(np.arange(axis.length), factor)
    return factor if np.array_equal(indices, repeated) else 0


def _repeat(binding: Binding, factors: Sequence[int]) -> Call | None:
    """One strided copy (or doubling) for whole factors, ``None`` if the last axis forbids it."""
    x, out = binding.input(0), binding.output()
    bits = 8 * x.dtype.itemsize
    if factors and factors[-1] == 2 and bits < 64 and out.strides[-1] == out.itemsize:
        # Two equal neighbours are one integer of twice the width: x * (1 + 2**bits).
        wide = np.dtype(f"u{bits // 4}").type
        doubled = x.view(np.dtype(f"u{bits // 8}"))
        target = out.view(wide).reshape(_interleaved(x.shape[:-1], factors) + x.shape[-1:])
        ones: Any = wide(1 + (1 << bits))
        source = doubled.reshape(_interleaved(x.shape[:-1], [1] * (x.ndim - 1)) + x.shape[-1:])
        return partial(np.multiply, source, ones, out=target, dtype=wide)
    if factors and factors[-1] != 1:
        return None
    return partial(np.copyto, out.reshape(_interleaved(x.shape, factors)), _spread(x))


def _interleaved(shape: Sequence[int], factors: Sequence[int]) -> tuple[int, ...]:
    return tuple(d for pair in zip(shape, factors, strict=False) for d in pair)


def _spread(x: Array) -> Array:
    """A view of ``x`` with an axis of one element after each axis."""
    return x[(slice(None), None) * x.ndim + (...,)]


def _take_axes(
    binding: Binding, axes: Sequence[ResizedAxis], indices: Sequence[Array]
) -> list[Call]:
    source, first = as_contiguous(binding, 0)
    out = binding.output()
    order = [
        number
        for number in processing_order(axes)
        if not np.array_equal(indices[number], np.arange(axes[number].length))
    ]
    if not order:
        return [partial(np.copyto, out, binding.input(0))]
    calls = list(first)
    for number in order:
        shape = replaced(source.shape, number, axes[number].resized)
        target = out if number == order[-1] else binding.scratch.take(shape, source.dtype)
        # mode="clip" lets numpy write to ``out`` directly; the indices are in range
        calls.append(
            partial(np.take, source, indices[number], axis=number, out=target, mode="clip")
        )
        source = target
    return calls


# -- linear and cubic ------------------------------------------------------------------------------


def _interpolate(binding: Binding, axes: Sequence[ResizedAxis]) -> list[Call]:
    x, out = binding.input(0), binding.output()
    tables = {number: axis_taps(binding, axes[number]) for number in processing_order(axes)}
    order = [number for number, table in tables.items() if not table.keeps(axes[number].length)]
    if not order:
        return [partial(np.copyto, out, x)]
    work = _work_dtype(x.dtype)
    source, first = _widened(binding, work)
    products, result = resampled(binding.scratch, source, out, [(n, tables[n]) for n in order])
    calls = [*first, *products]
    if result is not out:
        calls.extend(_narrow(result, out))
    return calls


def _widened(binding: Binding, work: np.dtype[Any]) -> tuple[Array, tuple[Call, ...]]:
    """Input 0 as a C-contiguous array of ``work``, and the calls that fill it."""
    x = binding.input(0)
    if x.dtype == work:
        return as_contiguous(binding, 0)
    wide = binding.scratch.take(x.shape, work)
    return wide, (partial(np.copyto, wide, x),)


def _work_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """float32 where it holds every value of ``dtype`` exactly, else float64."""
    return np.result_type(dtype, np.float32)


def _narrow(values: Array, out: Array) -> list[Call]:
    """Store computed ``values``; integers are rounded to nearest even and saturate."""
    if out.dtype.kind == "f":
        return [partial(np.copyto, out, values, casting="same_kind")]
    low, high = _integer_range(out.dtype, values.dtype)
    return [
        partial(np.rint, values, out=values),
        partial(np.clip, values, low, high, out=values),
        partial(np.copyto, out, values, casting="unsafe"),
    ]


def _integer_range(dtype: np.dtype[Any], work: np.dtype[Any]) -> tuple[Any, Any]:
    """The limits of an integer dtype, as values of ``work`` that convert without overflow."""
    info = np.iinfo(dtype)
    high = work.type(info.max)
    return work.type(info.min), high if int(high) <= info.max else np.nextafter(high, work.type(0))


KERNELS: Final[dict[str, Kernel]] = {"Resize": _resize}
