"""Deformable convolutions."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.ground.hints import Final
from popc_runtime.kernels.parts.windows import window_axes
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import has_elements, made_contiguous, tensors
from popc_runtime.native.record import Encoder, Record, is_float32
from popc_runtime.native.views import View

__all__ = ["ENCODERS"]


def _deform_conv(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X [N, C, H, W], W, offset, B?, mask?"""
    del numbers
    out = binding.output()
    if not is_float32(binding) or not has_elements(binding) or not out.is_contiguous:
        return None
    operands: list[View | None] = []
    before: list[Record] = []
    for index in range(5):
        array = binding.optional(index)
        if array is not None:
            array, steps = made_contiguous(binding, array)
            before.extend(steps)
        operands.append(array)
    x, w = binding.input(0), binding.input(1)
    axes = window_axes(binding, x.shape[2:], w.shape[2:], out.shape[2:])
    words = (
        *tensors(*operands, out),
        binding.integer("group", 1),
        binding.integer("offset_group", 1),
        *(word for axis in axes for word in (axis.stride, axis.begin, axis.dilation)),
    )
    used = tuple(array for array in (*operands, out) if array is not None)
    return Record("DeformConv_f32", words, used, before=tuple(before))


ENCODERS: Final[dict[str, Encoder]] = {"DeformConv": _deform_conv}
