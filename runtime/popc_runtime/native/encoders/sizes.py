"""Sizes that are checked, places that count from them, and what data has to be looked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import has_elements, made_contiguous, packed, tensors
from popc_runtime.native.faults import fault_of
from popc_runtime.native.places import are_indices
from popc_runtime.native.record import MAX_RANK, Encoder, Record
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


def _non_zero(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X {bound}: places, and their number."""
    del numbers
    to, found = binding.output(0), binding.output(1)
    x = binding.input(0)
    is_stored = binding.input_dtypes[0] is not x.dtype  # as the bits of another type
    if is_stored or x.size == 0 or x.ndim >= MAX_RANK or not to.is_contiguous:
        return None
    x, before = packed(binding, 0)
    return Record(
        "NonZero",
        (*tensors(x, to, found), binding.integer("bound")),
        (x, to, found),
        before=before,
        explain=partial(fault_of, "sizes", "NonZero", binding),
    )


def _non_max_suppression(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Boxes, scores, limit, overlap, threshold?, count? {bound, center_point_box}."""
    del numbers
    views = [binding.input(index) for index in range(4)]
    least, count = binding.optional(4), binding.optional(5)
    floats = [views[0], views[1], views[3], *([] if least is None else [least])]
    to, found = binding.output(0), binding.output(1)
    if not has_elements(binding) or not to.is_contiguous:
        return None
    if any(view.dtype is not DType.FLOAT32 for view in floats) or views[2].dtype is not DType.INT64:
        return None
    (boxes, first), (scores, second) = packed(binding, 0), packed(binding, 1)
    operands = (boxes, scores, views[2], views[3], least, count, to, found)
    return Record(
        "NonMaxSuppression",
        (*tensors(*operands), binding.integer("bound"), binding.integer("center_point_box")),
        operands,
        before=(*first, *second),
        explain=partial(fault_of, "sizes", "NonMaxSuppression", binding),
    )


def _unique(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, how many of it count? {axis, bound, sorted}: values, first places, inverse, counts."""
    del numbers
    x, used = binding.input(0), binding.optional(1)
    outs = [binding.optional_output(index) for index in range(len(binding.outputs))]
    outs += [None] * (5 - len(outs))
    is_stored = binding.input_dtypes[0] is not x.dtype
    if is_stored or x.size != x.shape[binding.integer("axis")] or x.size == 0:
        return None  # slices of several elements
    if x.dtype is DType.FLOAT16 or not all(out is None or out.is_contiguous for out in outs):
        return None
    x, before = packed(binding, 0)
    sort = int(bool(binding.integer("sorted")))
    return Record(
        "Unique",
        (*tensors(x, used, *outs), binding.integer("bound"), sort),
        (x, used, *outs),
        before=before,
        explain=partial(fault_of, "sizes", "Unique", binding),
    )


ENCODERS: Final[dict[str, Encoder]] = {
    "CheckSize": _check_size,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _non_zero,
    "PlacesWithin": _places_within,
    "Unique": _unique,
}
