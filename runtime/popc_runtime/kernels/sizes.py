"""Results of which data decides the size: what is there comes first, padding of zeros follows."""

from __future__ import annotations

from math import inf
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Kernel, pure
from popc_runtime.kernels.parts.boxes import corners, selected_boxes

__all__ = ["KERNELS"]


def _check_size(binding: Binding) -> Array:
    """The size; see `popc.ops.sizes`.

    Raises (while it runs):
        IndexError: it is beyond the bound, or not the other one.
    """
    size, other = binding.input(0), binding.optional(1)
    if other is not None and int(size) != int(other):
        raise IndexError(
            f"{binding.attributes['tensor']}: sizes {int(size):,} and {int(other):,} do not fit "
            "together"
        )
    _require_within(binding, int(size))
    return size


def _require_within(binding: Binding, size: int) -> None:
    """Raise IndexError if ``size`` is beyond the bound that was planned for."""
    bound = binding.integer("bound")
    if size > bound >= 0:
        name = binding.attributes["tensor"]
        raise IndexError(
            f"{name!r} has a size of {size:,}, but at most {bound:,} was planned for: compile the "
            f"model with --bound {name}={size}"
        )
    if size < 0:
        raise IndexError(f"{binding.attributes['tensor']!r} has a size of {size:,}")


def _padded(binding: Binding, output: int, values: Array, axis: int = 0) -> Array:
    """``values`` in the corner of an array as large as an output, zeros behind."""
    target = binding.optional_output(output)
    if target is None:
        return values
    whole = np.zeros(target.shape, target.dtype)
    whole[(*(slice(None),) * axis, slice(values.shape[axis]))] = values
    return whole


def _non_zero(binding: Binding) -> tuple[Array, ...]:
    x = binding.input(0)
    places = np.argwhere(x) if x.ndim else np.zeros((int(bool(x)), 0), np.int64)
    _require_within(binding, len(places))
    return _padded(binding, 0, places.T, 1), np.array(len(places), np.int64)


def _unique(binding: Binding) -> tuple[Array, ...]:
    """ONNX Unique-11; not sorted means by first place."""
    x, count = binding.input(0), binding.optional(1)
    axis = binding.integer("axis")
    if count is not None:
        x = x[(*(slice(None),) * axis, slice(int(count)))]
    unique, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    if not binding.integer("sorted"):
        order = np.argsort(first, kind="stable")
        unique, first, counts = np.take(unique, order, axis), first[order], counts[order]
        inverse = np.argsort(order, kind="stable")[inverse]
    _require_within(binding, len(first))
    return (
        _padded(binding, 0, unique, axis),
        _padded(binding, 1, first),
        _padded(binding, 2, inverse.reshape(-1)),
        _padded(binding, 3, counts),
        np.array(len(first), np.int64),
    )


def _non_max_suppression(binding: Binding) -> tuple[Array, ...]:
    boxes, scores = binding.input(0), binding.input(1)
    limit, overlap = int(binding.input(2).reshape(())), binding.input(3).reshape(())[()]
    threshold, count = binding.optional(4), binding.optional(5)
    least = -inf if threshold is None else float(threshold.reshape(()))
    if count is not None:
        boxes, scores = boxes[:, : int(count)], scores[:, :, : int(count)]
    found = corners(boxes, centred=bool(binding.integer("center_point_box")))
    rows = selected_boxes(found, scores, limit, np.float32(overlap), least)
    _require_within(binding, len(rows))
    return _padded(binding, 0, rows), np.array(len(rows), np.int64)


def _places_within(binding: Binding) -> Array:
    """Indices counted from the front, padding apart; see `popc.ops.sizes`.

    Raises (while it runs):
        IndexError: an index that is no padding is out of range.
    """
    given, sizes, valid = binding.input(0), binding.input(1), binding.optional(2)
    places = given.astype(np.int64)
    places += np.where(places < 0, sizes, 0)
    wrong = (places < 0) | (places >= sizes)
    if valid is not None:
        wrong &= valid
    if wrong.any():
        raise IndexError(f"index {given[wrong].flat[0]} is out of range for sizes {sizes.tolist()}")
    if valid is not None:
        padding = np.zeros(places.shape[-1:] if sizes.ndim else (), np.int64)
        padding[(0,) if sizes.ndim and padding.size else ...] = binding.integer("padding")
        places = np.where(valid, places, padding)
    return places


KERNELS: Final[dict[str, Kernel]] = {
    "CheckSize": pure(_check_size),
    "NonMaxSuppression": pure(_non_max_suppression),
    "NonZero": pure(_non_zero),
    "PlacesWithin": pure(_places_within),
    "Unique": pure(_unique),
}
