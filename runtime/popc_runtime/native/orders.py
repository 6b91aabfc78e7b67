"""Along an axis: extremes and their places, the first few in order, running sums and products."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Final

from popc_runtime.format.dtypes import DType
from popc_runtime.native.binding import Binding
from popc_runtime.native.packing import is_plain, packed, tensors
from popc_runtime.native.record import Encoder, Record

__all__ = ["ENCODERS"]


def _fits(binding: Binding) -> bool:
    results = [one for one in binding.outputs if one is not None]
    plain = is_plain(binding) and all(one.is_contiguous for one in results)
    return plain and binding.input(0).size > 0 and binding.input(0).ndim > 0


def _sizes(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    axis %= len(shape)
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def _top_k(binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    """X to values?, indices? {axis, k, largest}."""
    del numbers
    wanted = binding.integer("k")
    if not _fits(binding) or wanted == 0:
        return None
    x, before = packed(binding, 0)
    results = (binding.optional_output(0), binding.optional_output(1))
    sizes = _sizes(x.shape, binding.integer("axis"))
    words = (*tensors(x, *results), *sizes, wanted, binding.integer("largest", 1))
    return Record("TopK", words, (x,), before=before)


def _extreme(largest: int, binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    """X to indices {axis, select_last_index}."""
    del numbers
    if not _fits(binding) or binding.output().dtype != DType.INT64:
        return None
    x, before = packed(binding, 0)
    sizes = _sizes(x.shape, binding.integer("axis"))
    last = binding.integer("select_last_index", 0)
    words = (*tensors(x, binding.output()), *sizes, largest, last)
    return Record("ArgExtreme", words, (x,), before=before)


def _running(product: int, binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    """X, axis? {axis, reverse, exclusive}."""
    del numbers
    axis, x = binding.optional(1), binding.input(0)
    if not _fits(binding) or x.dtype not in (
        DType.FLOAT32,
        DType.FLOAT64,
        DType.INT32,
        DType.INT64,
    ):
        return None
    if axis is not None and not binding.is_constant(1):
        return None
    along = binding.integer("axis") if axis is None else int(axis.item())
    x, before = packed(binding, 0)
    flags = (binding.integer("reverse", 0), binding.integer("exclusive", 0), product)
    words = (*tensors(x, binding.output()), *_sizes(x.shape, along), *flags)
    return Record("Accumulate", words, (x,), before=before)


ENCODERS: Final[dict[str, Encoder]] = {
    "ArgMax": partial(_extreme, 1),
    "ArgMin": partial(_extreme, 0),
    "CumProd": partial(_running, 1),
    "CumSum": partial(_running, 0),
    "TopK": _top_k,
}
