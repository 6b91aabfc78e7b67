"""Pooling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc_runtime.kernels.windows import window_axes
from popc_runtime.native.binding import Binding
from popc_runtime.native.forms import is_channels_last
from popc_runtime.native.pool_gradients import of_squares, pooling_words, window_factors
from popc_runtime.native.record import Encoder, Record, activation_words, is_float32, tensor_words

__all__ = ["ENCODERS"]

_MOST_AXES: Final = 3


def _max_pool(binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    return None if binding.optional_output(1) is not None else _pool(binding, maximum=True)


def _average_pool(binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    return _pool(binding, maximum=False)


def _pool(binding: Binding, *, maximum: bool) -> Record | None:
    x, out, kernel = binding.input(0), binding.output(), binding.integers("kernel_shape")
    plain = is_float32(binding) and 1 <= len(kernel) <= _MOST_AXES
    if not plain or out.size == 0 or x.size == 0:
        return None
    axes = window_axes(binding, x.shape[2:], kernel, out.shape[2:])
    last = any(is_channels_last(one) and not one.is_contiguous for one in (x, out))
    last = last or not out.is_contiguous
    kernel_name = "PoolLast_f32" if last else "Pool_f32"
    if maximum and of_squares(axes) and x.is_contiguous and out.is_contiguous:
        return Record("MaxOfSquares_f32", pooling_words(axes, None, x, out, None))
    window = x.of_memory((x.shape[1], 1, *kernel))  # only its shape is read
    words = [*tensor_words(x), *tensor_words(window), *tensor_words(out)]
    words += [*tensor_words(None), *tensor_words(None), x.shape[1]]
    for axis in axes:
        words += (axis.stride, axis.dilation, axis.begin)
    words += (*activation_words(0, ()), int(maximum))
    if maximum:
        return Record(kernel_name, (*words, *tensor_words(None)))
    factors = window_factors(binding, axes)
    return Record(kernel_name, (*words, *tensor_words(factors)), (factors,))


ENCODERS: Final[dict[str, Encoder]] = {"AveragePool": _average_pool, "MaxPool": _max_pool}
