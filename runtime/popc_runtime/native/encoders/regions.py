"""Bins of regions."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import has_elements, packed, tensors
from popc_runtime.native.record import Encoder, Record, float_word, is_float32
from popc_runtime.native.views import View

__all__ = ["ENCODERS"]


def _roi_align(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X [N, C, H, W], regions [R, 4], the image of each."""
    del numbers
    floats = (*binding.input_dtypes[:2], *binding.output_dtypes)
    fits = has_elements(binding) and binding.output().is_contiguous
    if not fits or any(dtype is not DType.FLOAT32 for dtype in floats):
        return None
    if binding.input_dtypes[2] is not DType.INT64:
        return None
    operands, before = _all_packed(binding, 3)
    half = binding.text("coordinate_transformation_mode") == "half_pixel"
    words = (
        *tensors(*operands, binding.output()),
        float_word(binding.number("spatial_scale")),
        float_word(0.5 * half),
        binding.integer("sampling_ratio"),
        int(not half),
        int(binding.text("mode") != "avg"),
    )
    return Record("RoiAlign_f32", words, operands, before=before)


def _max_roi_pool(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X [N, C, H, W], regions [R, 5]: image, left, top, right, bottom."""
    del numbers
    fits = is_float32(binding) and has_elements(binding) and binding.output().is_contiguous
    if not fits:
        return None
    operands, before = _all_packed(binding, 2)
    scale = float_word(binding.number("spatial_scale"))
    words = (*tensors(*operands, None, binding.output()), scale)
    return Record("MaxRoiPool_f32", words, operands, before=before)


def _all_packed(binding: NativeBinding, count: int) -> tuple[tuple[View, ...], tuple[Record, ...]]:
    pairs = [packed(binding, index) for index in range(count)]
    return tuple(word for word, _ in pairs), tuple(step for _, steps in pairs for step in steps)


ENCODERS: Final[dict[str, Encoder]] = {
    "MaxRoiPool": _max_roi_pool,
    "RoiAlign": _roi_align,
}
