"""Transposed convolutions whose phases are made by one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from popc_runtime.ground.hints import Final
from popc_runtime.kernels.parts.windows import WindowAxis
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.record import Record, tensor_words

__all__ = ["transposed_at_once"]

# As in csrc/kernels/conv/transposed.h.
_MOST_PHASES: Final = 256
_MOST_TAPS: Final = 1 << 12
_FEW_RESULTS: Final = 2  # channels of a group: other kernels fill vectors with pixels, too
_WINOGRAD: Final = 3  # taps of each phase


def transposed_at_once(
    binding: NativeBinding, axes: Sequence[WindowAxis], activation: tuple[int, ...]
) -> Record | None:
    """X [N, C, *sizes], W [C, M / group, *kernel], [B [M]]; ``None`` where phases go one by one.

    ``axes`` are those of the result.
    """
    x, w, out = binding.input(0), binding.input(1), binding.output()
    group = binding.integer("group", 1)
    counts = [min(axis.stride, axis.size) for axis in axes]
    if prod(counts) == 1 or prod(counts) > _MOST_PHASES or prod(w.shape[2:]) > _MOST_TAPS:
        return None
    if not out.is_contiguous or any(axis.dilation != 1 for axis in axes):
        return None
    if group > 1 and w.shape[1] <= _FEW_RESULTS:
        return None
    if group == 1 and all(axis.kernel == _WINOGRAD * axis.stride for axis in axes):
        return None
    words = [*tensor_words(out), *tensor_words(w, constant=binding.is_constant(1))]
    words += [*tensor_words(x), *tensor_words(None), *tensor_words(None), group]
    words += [word for axis in axes for word in (axis.stride, axis.dilation, axis.begin)]
    words += [*activation, *tensor_words(binding.optional(2))]
    return Record("ConvTransposed_f32", tuple(words))
