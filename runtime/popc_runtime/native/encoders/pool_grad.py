"""Gradients of pooling."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import prod

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.kernels.parts.windows import WindowAxis, window_axes
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.record import Encoder, Record, is_float32, tensor_words
from popc_runtime.native.views import View, view_of_bytes

__all__ = ["ENCODERS", "of_squares", "pooling_words", "window_factors"]

_AXES: Final = 3  # spatial axes that the kernel has; fewer are preceded by axes of size 1


def pooling_words(
    axes: Sequence[WindowAxis],
    dy: View | None,
    x: View | None,
    y: View | None,
    dx: View | None,
    factors: View | None = None,
) -> tuple[int, ...]:
    """The words of the kernels of ``pool_grad.c``; all operands are contiguous."""
    words: list[int] = []
    for array in (dy, x, y, dx, factors):
        words += tensor_words(array)
    whole = next(array for array in (x, dx) if array is not None)
    words.append(prod(whole.shape[:2]))
    missing = (WindowAxis(1, 1, out=1) for _ in range(_AXES - len(axes)))
    for axis in (*missing, *(axis.used for axis in axes)):
        words += (axis.size, axis.kernel, axis.out, axis.stride, axis.dilation, axis.begin)
    return tuple(words)


def of_squares(axes: Sequence[WindowAxis]) -> bool:
    """True if windows are squares of 2 x 2 side by side."""
    return len(axes) == 2 and all(
        (axis.kernel, axis.stride, axis.dilation, axis.begin) == (2, 2, 1, 0)
        and axis.out == axis.size // 2
        for axis in axes
    )


def window_factors(binding: NativeBinding, axes: Sequence[WindowAxis]) -> View:
    """The weight of each element of a window in an average, [*windows] float32.

    Attribute ``count_include_pad`` says whether padding is counted.
    """
    include = bool(binding.integer("count_include_pad", 0))
    counts = [axis.counts(include_padding=include) for axis in axes]
    return view_of_bytes(_shares(counts, 1), DType.FLOAT32, tuple(axis.out for axis in axes))


def _shares(counts: Sequence[Sequence[tuple[int, int]]], outer: int) -> bytes:
    """The reciprocals of the products of sizes, all times ``outer``; float32."""
    if not counts:
        return struct.pack("f", 1 / outer)
    sizes = {max(size, 1) for size, _ in counts[0]}
    inner = {size: _shares(counts[1:], outer * size) for size in sizes}
    return b"".join(inner[max(size, 1)] * times for size, times in counts[0])


def _axes(binding: NativeBinding) -> tuple[WindowAxis, ...] | None:
    """The axes; ``None`` if there are too many, or memory is not plain."""
    arrays = [*binding.inputs, *binding.outputs]
    kernel = binding.integers("kernel_shape")
    plain = all(view is None or (view.is_contiguous and view.size) for view in arrays)
    if not plain or not is_float32(binding) or not 1 <= len(kernel) <= _AXES:
        return None
    return window_axes(binding, binding.output().shape[2:], kernel, binding.input(0).shape[2:])


def _max_pool_grad(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """The gradient of the maxima, X and the maxima, to dX."""
    del numbers
    axes = _axes(binding)
    if axes is None:
        return None
    dy, x, y = (binding.input(index) for index in range(3))
    words = pooling_words(axes, dy, x, y, binding.output())
    return Record("MaxOfSquaresGrad_f32" if of_squares(axes) else "MaxPoolGrad_f32", words)


def _average_pool_grad(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """dY to dX; attribute ``sum`` leaves out the division."""
    del numbers
    axes = _axes(binding)
    if axes is None:
        return None
    dy, dx, factors = binding.input(0), binding.output(), None
    if not binding.integer("sum", 0):
        factors = window_factors(binding, axes)
    words = pooling_words(axes, dy, None, None, dx, factors)
    return Record("AveragePoolGrad_f32", words, () if factors is None else (factors,))


ENCODERS: Final[dict[str, Encoder]] = {
    "AveragePoolGrad": _average_pool_grad,
    "MaxPoolGrad": _max_pool_grad,
}
