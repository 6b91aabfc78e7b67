"""Along an axis: places of extremes, running sums and products."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import fits_along, packed, sizes_along, tensors
from popc_runtime.native.record import Encoder, Record
from popc_runtime.native.views import view_of_numbers

__all__ = ["ENCODERS"]

_AXES: Final = (DType.INT32, DType.INT64)


def _extreme(largest: int, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X to indices {axis, select_last_index}."""
    del numbers
    if not fits_along(binding) or binding.output().dtype != DType.INT64:
        return None
    x, before = packed(binding, 0)
    sizes = sizes_along(x.shape, binding.integer("axis"))
    last = binding.integer("select_last_index", 0)
    words = (*tensors(x, binding.output()), *sizes, largest, last)
    return Record("ArgExtreme", words, (x,), before=before)


def _hardmax(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X {axis}: 1 at the first extreme of a line, 0 elsewhere."""
    del numbers
    x, out = binding.input(0), binding.output()
    if not fits_along(binding) or not x.dtype.is_float:
        return None
    x, before = packed(binding, 0)
    outer, length, inner = sizes_along(x.shape, binding.integer("axis"))
    places = binding.scratch.take((outer, inner), DType.INT64)
    values = view_of_numbers([0, 1], out.dtype)
    find = Record("ArgExtreme", (*tensors(x, places), outer, length, inner, 1, 0), (x, places))
    words = (*tensors(places, values, out), outer, length, inner)
    return Record("OneHot", words, (places, values, out), before=(*before, find))


def _running(product: int, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, axis? {axis, reverse, exclusive}."""
    del numbers
    axis, x = binding.optional(1), binding.input(0)
    if not fits_along(binding) or x.dtype not in (
        DType.FLOAT32,
        DType.FLOAT64,
        DType.INT32,
        DType.INT64,
    ):
        return None
    if axis is not None and (axis.dtype not in _AXES or axis.size != 1):
        return None
    known = axis is None or binding.is_constant(1)
    along = binding.integer("axis") if axis is None else int(axis.item()) if known else 0
    x, before = packed(binding, 0)
    flags = (binding.integer("reverse", 0), binding.integer("exclusive", 0), product)
    words = (*tensors(x, binding.output()), *sizes_along(x.shape, along), *flags)
    given = None if known else axis
    return Record("Accumulate", (*words, *tensors(given)), (x, given), before=before)


def _product_grad(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """The gradient, X, axis? {axis, reverse, exclusive}; the axis is known."""
    del numbers
    axis, x, out = binding.optional(2), binding.input(1), binding.output()
    types = {binding.input(0).dtype, x.dtype, out.dtype}
    if not fits_along(binding) or len(types) > 1 or x.dtype not in (DType.FLOAT32, DType.FLOAT64):
        return None
    if axis is not None and not binding.is_constant(2):
        return None
    along = binding.integer("axis") if axis is None else int(axis.item())
    (grad, first), (x, second) = packed(binding, 0), packed(binding, 1)
    flags = (binding.integer("reverse", 0), binding.integer("exclusive", 0))
    words = (*tensors(grad, x, out), *sizes_along(x.shape, along), *flags)
    return Record("CumProdGrad", words, (grad, x), before=(*first, *second))


ENCODERS: Final[dict[str, Encoder]] = {
    "ArgMax": partial(_extreme, 1),
    "ArgMin": partial(_extreme, 0),
    "CumProd": partial(_running, 1),
    "CumProdGrad": _product_grad,
    "CumSum": partial(_running, 0),
    "Hardmax": _hardmax,
}
