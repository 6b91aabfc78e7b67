"""Counts and sums that optimizers look at."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import has_elements, tensors
from popc_runtime.native.encoders.statistics import count_levels
from popc_runtime.native.record import Encoder, Record, is_float32
from popc_runtime.native.reductions import REDUCTIONS
from popc_runtime.native.views import view_of_numbers

__all__ = ["ENCODERS"]


def _histogram(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X {levels}: how many sizes are up to each level."""
    del numbers
    levels = view_of_numbers(binding.numbers("levels"), DType.FLOAT32)
    return count_levels(binding, levels, (), 1, closed=1)


def _sum_of_squares(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X: of all elements."""
    del numbers
    x, out = binding.input(0), binding.output()
    if not is_float32(binding) or not has_elements(binding):
        return None
    single = out.reshape((1,) * x.ndim)
    words = (*tensors(x, single), REDUCTIONS.index("ReduceSumSquare"))
    return Record("Reduce", words, (x, single))


ENCODERS: Final[dict[str, Encoder]] = {
    "Histogram": _histogram,
    "LambSquare": _sum_of_squares,
}
