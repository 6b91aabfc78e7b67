"""Pooling."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.kernels.parts.windows import window_axes
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import has_few_dimensions, made_contiguous, packed, tensors
from popc_runtime.native.encoders.pool_grad import of_squares, pooling_words, window_factors
from popc_runtime.native.forms import is_channels_last
from popc_runtime.native.record import (
    MOST_AXES,
    Encoder,
    Record,
    activation_words,
    is_float32,
    tensor_words,
)
from popc_runtime.native.views import View

__all__ = ["ENCODERS"]

_OTHERS: Final = (DType.FLOAT64, DType.INT8, DType.UINT8)


def _max_pool(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    places, dtype = binding.optional_output(1), binding.input_dtypes[0]
    if places is None and dtype is DType.FLOAT32:
        return _pool(binding, maximum=True)
    known = (DType.FLOAT32,) if places is not None else _OTHERS
    return _by_rows("MaxPoolRows", binding, places) if dtype in known else None


def _norm_pool(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Sums of powers; padding counts as zero."""
    del numbers
    return _by_rows("NormPool_f32", binding, None) if is_float32(binding) else None


def _by_rows(kernel: str, binding: NativeBinding, places: View | None) -> Record | None:
    """Kernels of pool_rows.c, which know up to three axes; maxima also of channels side by side."""
    x, out, taps = binding.input(0), binding.output(), binding.integers("kernel_shape")
    results = [result for result in (out, places) if result is not None]
    if not 1 <= len(taps) <= MOST_AXES or out.size == 0 or x.size == 0:
        return None
    axes, sizes = window_axes(binding, x.shape[2:], taps, out.shape[2:]), x.shape[2:]
    pixels = (0, *range(2, x.ndim), 1)
    last = kernel == "MaxPoolRows" and places is None and not out.is_contiguous
    if last:
        results = [out := out.transpose(*pixels)]
    if not all(result.is_contiguous for result in results):
        return None
    x, before = made_contiguous(binding, x.transpose(*pixels) if last else x)
    by_column = bool(binding.integer("storage_order", 0))
    steps = [prod(sizes[:n] if by_column else sizes[n + 1 :]) for n in range(len(sizes))]
    words = [*tensors(x, out, places), binding.integer("p", 2), x.shape[-1] if last else 1]
    words += (1, 1, 1, 1, 1, 0, 0) * (MOST_AXES - len(axes))
    for axis, step in zip((axis.used for axis in axes), steps, strict=True):
        words += (axis.size, axis.out, axis.kernel, axis.stride, axis.dilation, axis.begin, step)
    return Record(kernel, tuple(words), (x, *results), before=before)


def _average_pool(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    return _pool(binding, maximum=False)


def _pool(binding: NativeBinding, *, maximum: bool) -> Record | None:
    x, out, kernel = binding.input(0), binding.output(), binding.integers("kernel_shape")
    plain = is_float32(binding) and 1 <= len(kernel) <= MOST_AXES
    if not plain or out.size == 0 or x.size == 0:
        return None
    axes = window_axes(binding, x.shape[2:], kernel, out.shape[2:])
    last = any(is_channels_last(image) and not image.is_contiguous for image in (x, out))
    last = last or not out.is_contiguous
    kernel_name = "PoolLast_f32" if last else "Pool_f32"
    if maximum and of_squares(axes) and x.is_contiguous and out.is_contiguous:
        return Record("MaxOfSquares_f32", pooling_words(axes, None, x, out, None))
    used = [axis.used for axis in axes]
    window = x.of_memory((x.shape[1], 1, *(axis.kernel for axis in used)))  # its shape is read
    words = [*tensor_words(x), *tensor_words(window), *tensor_words(out)]
    words += [*tensor_words(None), *tensor_words(None), x.shape[1]]
    for axis in used:
        words += (axis.stride, axis.dilation, axis.begin)
    words += (*activation_words(0, ()), int(maximum))
    if maximum:
        return Record(kernel_name, (*words, *tensor_words(None)))
    factors = window_factors(binding, axes)
    return Record(kernel_name, (*words, *tensor_words(factors)), (factors,))


def _unpool(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Values put where indices say; zero elsewhere."""
    del numbers
    x, indices, out = binding.input(0), binding.input(1), binding.output()
    known = has_few_dimensions(binding) and indices.dtype is DType.INT64
    if not known or x.size == 0 or out.size == 0 or not out.is_contiguous:
        return None
    (values, first), (places, second) = packed(binding, 0), packed(binding, 1)
    planes = prod(x.shape[:2]) if x.shape[:2] == out.shape[:2] else 1
    words = (*tensors(out, places, values), planes)
    return Record("Unpool", words, (out, places, values), before=(*first, *second))


ENCODERS: Final[dict[str, Encoder]] = {
    "AveragePool": _average_pool,
    "LpPool": _norm_pool,
    "MaxPool": _max_pool,
    "MaxUnpool": _unpool,
}
