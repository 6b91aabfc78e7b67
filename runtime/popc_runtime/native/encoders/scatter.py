"""Elements and rows that are put to places that indices name."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import copied, has_few_dimensions, is_plain, packed, tensors
from popc_runtime.native.places import are_indices, are_numbers, has_places, is_movable
from popc_runtime.native.record import Encoder, Record

__all__ = ["ENCODERS", "put"]

# The numbers are known to csrc/kernels/scatter/places.c.
_COMBINATIONS: Final = {"none": 0, "add": 1, "sum": 1, "mul": 2, "min": 3, "max": 4}
_COMBINED: Final = ("float32", "float64", "int8", "uint8", "int32", "int64")


def put(
    binding: NativeBinding,
    axis: int,
    reduction: str,
    operands: tuple[int, int],
    start: tuple[Record, ...],
) -> Record | None:
    """Updates and indices by the numbers of the ``operands``; ``start`` fills the result."""
    out = binding.output()
    movable = is_plain(binding) or (reduction == "none" and has_few_dimensions(binding))
    fits = movable and are_indices(binding, operands[1]) and out.is_contiguous
    updates, named = (binding.input(operand) for operand in operands)
    if not fits or not has_places(out, named, updates):
        return None
    if reduction != "none" and out.dtype not in _COMBINED:
        return None
    (values, first), (indices, second) = (packed(binding, operand) for operand in operands)
    words = (*tensors(out, indices, values), axis, 0, _COMBINATIONS[reduction])
    return Record("PutPlaces", words, (out, indices, values), before=(*start, *first, *second))


def _scatter_elements(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Data, indices, updates {axis, reduction}."""
    del numbers
    axis = binding.integer("axis", 0) % max(binding.output().ndim, 1)
    return put(binding, axis, binding.text("reduction", "none"), (2, 1), copied(binding, 0))


def _scatter_rows(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Data, tuples of indices, updates {reduction}."""
    del numbers
    return put(binding, -1, binding.text("reduction", "none"), (2, 1), copied(binding, 0))


def _store_steps(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Cache, update, starts? {axis, mode}."""
    del numbers
    out, starts = binding.output(), binding.optional(2)
    movable = is_movable(out, binding.input(1)) and out.is_contiguous
    if not movable or not are_numbers(starts):
        return None
    axis = binding.integer("axis", -2) % out.ndim
    update, before = packed(binding, 1)
    sizes = (out.shape[0], prod(out.shape[1:axis]), out.shape[axis], update.shape[axis])
    circular = int(binding.text("mode", "linear") == "circular")
    words = (*tensors(out, update, starts), *sizes, out.strides[axis], circular)
    return Record("StoreSteps", words, (out, update), before=(*copied(binding, 0), *before))


ENCODERS: Final[dict[str, Encoder]] = {
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_rows,
    "TensorScatter": _store_steps,
}
