"""The first few along an axis, in order."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import fits_along, packed, sizes_along, tensors
from popc_runtime.native.record import Encoder, Record

__all__ = ["ENCODERS"]


def _top_k(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X to values?, indices? {axis, k, largest}."""
    del numbers
    wanted = binding.integer("k")
    if not fits_along(binding) or wanted == 0:
        return None
    x, before = packed(binding, 0)
    results = (binding.optional_output(0), binding.optional_output(1))
    sizes = sizes_along(x.shape, binding.integer("axis"))
    words = (*tensors(x, *results), *sizes, wanted, binding.integer("largest", 1))
    return Record("TopK", words, (x,), before=before)


ENCODERS: Final[dict[str, Encoder]] = {
    "TopK": _top_k,
}
