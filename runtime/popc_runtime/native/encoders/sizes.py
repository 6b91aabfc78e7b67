"""Sizes that are checked, and places that count from them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import has_elements, made_contiguous, packed, tensors
from popc_runtime.native.faults import fault_of
from popc_runtime.native.places import are_indices
from popc_runtime.native.record import Encoder, Record
from popc_runtime.native.views import broadcast_to

__all__ = ["ENCODERS"]


def _check_size(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """A size and optionally another {bound}."""
    del numbers
    views = (binding.input(0), binding.optional(1), binding.output())
    return Record(
        "CheckSize",
        (*tensors(*views), binding.integer("bound")),
        views,
        explain=partial(fault_of, "sizes", "CheckSize", binding),
    )


def _places_within(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Indices, sizes, and optionally which indices count {padding}."""
    del numbers
    out, valid = binding.output(), binding.optional(2)
    if not has_elements(binding) or not are_indices(binding, 0) or not out.is_contiguous:
        return None
    (indices, first), (sizes, second) = packed(binding, 0), packed(binding, 1)
    third: tuple[Record, ...] = ()
    if valid is not None:
        valid, third = made_contiguous(binding, broadcast_to(valid, indices.shape))
    return Record(
        "PlacesWithin",
        (*tensors(indices, sizes, valid, out), binding.integer("padding")),
        (indices, sizes, valid, out),
        before=(*first, *second, *third),
        explain=partial(fault_of, "sizes", "PlacesWithin", binding),
    )


ENCODERS: Final[dict[str, Encoder]] = {
    "CheckSize": _check_size,
    "PlacesWithin": _places_within,
}
