"""Elements at positions of a grid."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import has_elements, packed, tensors
from popc_runtime.native.record import MOST_AXES, Encoder, Record, is_float32

__all__ = ["ENCODERS"]

# The numbers are known to csrc/kernels/regions/grid.c.
_MODES: Final = {"nearest": 0, "linear": 1, "cubic": 2}
_PADDINGS: Final = {"zeros": 0, "border": 1, "reflection": 2}


def _grid_sample(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X [N, C, ...], grid [N, ..., axes] {mode, padding_mode, align_corners}."""
    del numbers
    out = binding.output()
    fits = is_float32(binding) and has_elements(binding) and out.is_contiguous
    if not fits or binding.input(0).ndim - 2 > MOST_AXES:
        return None
    (x, first), (grid, second) = packed(binding, 0), packed(binding, 1)
    mode, padding = _MODES[binding.text("mode")], _PADDINGS[binding.text("padding_mode")]
    words = (*tensors(x, grid, out), mode, padding, binding.integer("align_corners"))
    return Record("GridSample_f32", words, (x, grid, out), before=(*first, *second))


ENCODERS: Final[dict[str, Encoder]] = {
    "GridSample": _grid_sample,
}
