"""Convolution: which algorithm computes it.

The last two spatial axes are called rows and columns.  `conv_plane` cuts a convolution into such
over rows and columns; `conv_dense` and `conv_depthwise` do the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.bound import merged_view
from popc_runtime.kernels.core.copying import copy_calls
from popc_runtime.kernels.parts.conv_dense import dense_calls
from popc_runtime.kernels.parts.conv_depthwise import depthwise_calls, is_depthwise
from popc_runtime.kernels.parts.conv_plane import Plane, grouped, planes
from popc_runtime.kernels.parts.epilogue import in_float32
from popc_runtime.kernels.parts.partials import adds_up_in_half, half_convolution
from popc_runtime.kernels.parts.windows import window_axes

__all__ = ["KERNELS", "convolution_calls"]


def _conv(binding: Binding) -> Calls:
    """X [N, C, *sizes], W [M, C / group, *kernel], [B [M]], [residual]."""
    if binding.output().size == 0:
        return ()
    if adds_up_in_half(binding):
        return half_convolution(_conv, binding, transposed=False)
    if _wants_planes(binding):
        return _in_planes(binding)
    if not _lies_in_planes(binding.output()):
        return _into_planes(binding)
    group = binding.integer("group", 1)
    x, out = grouped(binding.input(0), 1, group), grouped(binding.output(), 1, group)
    w = grouped(binding.input(1), 0, group)
    bias, residual = binding.optional(2), binding.optional(3)
    bias = None if bias is None else bias.reshape(*w.shape[:2], 1, 1)
    residual = None if residual is None else grouped(residual, 1, group)
    axes = window_axes(binding, x.shape[3:], w.shape[3:], out.shape[3:])
    return convolution_calls(binding, list(planes(x, w, out, axes, bias, residual)))


def _wants_planes(binding: Binding) -> bool:
    """True if images lie pixel by pixel, and windows of several elements are read from them."""
    images = (binding.input(0), binding.output(), binding.optional(3))
    several = prod(binding.input(1).shape[2:]) > 1
    return several and any(image is not None and _has_pixels(image) for image in images)


def _has_pixels(image: Array) -> bool:
    return image.strides[1] == image.itemsize and image.shape[1] > 1 and prod(image.shape[2:]) > 1


def _in_planes(binding: Binding) -> Calls:
    """The calls for copies of images: turning them costs less than reading across them."""
    x, w, *others = binding.inputs
    calls: list[Call] = []
    inputs = [w, *others[:1]]

    def plane_by_plane(image: Array | None) -> Array | None:
        if image is None or not _has_pixels(image):
            return image
        copy = binding.scratch.take(image.shape, image.dtype)
        calls.extend(copy_calls(copy, image))
        return copy

    operands = (plane_by_plane(x), *inputs, *map(plane_by_plane, others[1:]))
    out = binding.output()
    target = binding.scratch.take(out.shape, out.dtype) if _has_pixels(out) else out
    found = _conv(replace(binding, inputs=operands, outputs=(target,)))
    calls += found if isinstance(found, tuple) else (found,)
    return (*calls, *(copy_calls(out, target) if target is not out else ()))


def _lies_in_planes(image: Array) -> bool:
    """True if rows of a plane lie one behind the other, so that a product can write several."""
    return merged_view(image, (*image.shape[:2], prod(image.shape[2:]))) is not None


def _into_planes(binding: Binding) -> Calls:
    """The calls that compute the result beside its place, where it has gaps."""
    out = binding.output()
    target = binding.scratch.take(out.shape, out.dtype)
    found = _conv(replace(binding, outputs=(target,)))
    calls = found if isinstance(found, tuple) else (found,)
    return (*calls, *copy_calls(out, target))


def convolution_calls(binding: Binding, parts: Sequence[Plane]) -> tuple[Call, ...]:
    """The calls of a convolution that consists of ``parts``; input 1 of the op are its weights."""
    if is_depthwise(parts[0]):
        return depthwise_calls(binding, parts[0])
    return dense_calls(binding, parts)


KERNELS: Final[dict[str, Kernel]] = {"Conv": in_float32(_conv)}
