"""Elements at positions that are known at run time: grids, and bins of regions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc_runtime.format.dtypes import DType
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import is_plain, packed, tensors
from popc_runtime.native.record import MOST_AXES, Encoder, Record, float_word, is_float32
from popc_runtime.native.views import View

__all__ = ["ENCODERS"]

# The numbers are known to csrc/kernels/regions/grid.c.
_MODES: Final = {"nearest": 0, "linear": 1, "cubic": 2}
_PADDINGS: Final = {"zeros": 0, "border": 1, "reflection": 2}


def _has_elements(binding: NativeBinding) -> bool:
    arrays = [view for view in (*binding.inputs, *binding.outputs) if view is not None]
    return is_plain(binding) and all(view.size > 0 for view in arrays)


def _grid_sample(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X [N, C, ...], grid [N, ..., axes] {mode, padding_mode, align_corners}."""
    del numbers
    out = binding.output()
    fits = is_float32(binding) and _has_elements(binding) and out.is_contiguous
    if not fits or binding.input(0).ndim - 2 > MOST_AXES:
        return None
    (x, first), (grid, second) = packed(binding, 0), packed(binding, 1)
    mode, padding = _MODES[binding.text("mode")], _PADDINGS[binding.text("padding_mode")]
    words = (*tensors(x, grid, out), mode, padding, binding.integer("align_corners"))
    return Record("GridSample_f32", words, (x, grid, out), before=(*first, *second))


def _roi_align(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X [N, C, H, W], regions [R, 4], the image of each."""
    del numbers
    floats = (*binding.input_dtypes[:2], *binding.output_dtypes)
    fits = _has_elements(binding) and binding.output().is_contiguous
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
    fits = is_float32(binding) and _has_elements(binding) and binding.output().is_contiguous
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
    "GridSample": _grid_sample,
    "MaxRoiPool": _max_roi_pool,
    "RoiAlign": _roi_align,
}
