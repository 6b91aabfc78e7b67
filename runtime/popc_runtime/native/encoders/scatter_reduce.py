"""Values that are combined at places that indices name."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import copied, tensors
from popc_runtime.native.encoders.scatter import put
from popc_runtime.native.record import Encoder, Record

__all__ = ["ENCODERS"]


def _scatter_reduce(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Values, indices, initial values? {axis, reduction}."""
    del numbers
    out, reduction = binding.output(), binding.text("reduction")
    if binding.input(1).ndim != out.ndim or out.size == 0 or out.dtype.itemsize > 8:
        return None
    if binding.optional(2) is not None:
        start = copied(binding, 2)
    elif reduction in ("none", "sum"):
        start = (Record("Fill", (*tensors(out), 0), (out,)),)
    else:
        return None
    return put(binding, binding.integer("axis") % out.ndim, reduction, (0, 1), start)


ENCODERS: Final[dict[str, Encoder]] = {
    "ScatterReduce": _scatter_reduce,
}
