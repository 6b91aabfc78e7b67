"""Ranks among boundaries, and counts."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import has_elements, is_plain, packed, tensors
from popc_runtime.native.record import Encoder, Record
from popc_runtime.native.views import View

__all__ = ["ENCODERS", "count_levels"]


def _ranks(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, boundaries {right}."""
    del numbers
    kinds = (DType.FLOAT32, DType.FLOAT64, DType.INT32, DType.INT64)
    out = binding.output()
    if not has_elements(binding) or binding.input_dtypes[0] not in kinds:
        return None
    if binding.input_dtypes[0] is not binding.input_dtypes[1] or not out.is_contiguous:
        return None
    (x, first), (levels, second) = packed(binding, 0), packed(binding, 1)
    words = (*tensors(x, levels, out), binding.integer("right"))
    return Record("Rank", words, (x, levels, out), before=(*first, *second))


def _bins(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, levels {absolute}: how many are below each level."""
    del numbers
    if binding.input_dtypes[1] is not DType.FLOAT32:
        return None
    levels, before = packed(binding, 1)
    return count_levels(binding, levels, before, binding.integer("absolute"), closed=0)


def count_levels(
    binding: NativeBinding, levels: View, before: tuple[Record, ...], absolute: int, *, closed: int
) -> Record | None:
    """Count the elements below each level, or up to it if ``closed``; sizes if ``absolute``."""
    out = binding.output()
    plain = is_plain(binding) and binding.input_dtypes[0] is DType.FLOAT32 and out.is_contiguous
    if not plain or binding.input(0).size == 0 or levels.size == 0:
        return None
    x, more = packed(binding, 0)
    words = (*tensors(x, levels, out), absolute, closed)
    return Record("CountLevels_f32", words, (x, levels, out), before=(*before, *more))


ENCODERS: Final[dict[str, Encoder]] = {
    "BinCount": _bins,
    "Bucketize": _ranks,
}
