"""The gradient of Resize: what an element was weighted with is what it gets of each gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from popc_runtime.kernels.accumulate import clear
from popc_runtime.kernels.banded import resampled
from popc_runtime.kernels.binding import Binding, Calls, Kernel
from popc_runtime.kernels.copying import as_contiguous, copy_calls
from popc_runtime.kernels.epilogue import in_float32
from popc_runtime.kernels.operands import Operands
from popc_runtime.kernels.resample import Axis, Taps, nearest_indices, outside
from popc_runtime.kernels.resize import axis_taps, processing_order, resized_axes

__all__ = ["KERNELS", "gradient_taps"]


def _resize_grad(binding: Binding) -> Calls:
    """The attributes are those of the Resize, but for ``shape``, which is that of its operand."""
    grad, out = binding.input(0), binding.output()
    if grad.size == 0:
        return clear(out)
    transposed = gradient_taps(binding)
    if not transposed:
        return copy_calls(out, grad)
    source, packing = as_contiguous(binding, 0)
    products, _ = resampled(binding.scratch, source, out, transposed)
    return (*packing, *products)


def gradient_taps(binding: Operands[Any]) -> list[tuple[int, Taps]]:
    """The axes to go through, in order, and what each element of the result is a sum of."""
    axes = resized_axes(binding, binding.output().shape, binding.input(0).shape)
    tables = {number: _sources(binding, axes[number]) for number in processing_order(axes)[::-1]}
    return [
        (number, table.transposed(axes[number].length))
        for number, table in tables.items()
        if not table.keeps(axes[number].length)
    ]


def _sources(binding: Operands[Any], axis: Axis) -> Taps:
    """Where the elements of the resized axis came from; nowhere, outside the region's source."""
    transformation = binding.text("coordinate_transformation_mode")
    if binding.text("mode") == "nearest":
        indices = nearest_indices(axis, transformation, binding.text("nearest_mode"))
        table = Taps(indices[:, None], np.ones((len(indices), 1)))
    else:
        table = axis_taps(binding, axis)
    inside = ~outside(axis, transformation)
    return replace(table, weights=table.weights * inside[:, None])


KERNELS: Final[dict[str, Kernel]] = {"ResizeGrad": in_float32(_resize_grad)}
