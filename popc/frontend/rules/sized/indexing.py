"""Gather, scatter, and selections of as many elements as data decides."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np

from popc.frontend.rules.sized.node import SizedNode, SizedRule
from popc.frontend.rules.sized.shapes import gathered_along
from popc.frontend.rules.sized.spread import spread_together
from popc.frontend.values import SizedValue, Value
from popc.ir import AttributeMap, Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES"]

_TRASH: Final = 1  # rows behind a tensor, which padding is scattered to


# -- what data selects -----------------------------------------------------------------------------


def _non_zero(node: SizedNode) -> Value:
    value = node.sized(0)
    places, count = _places_of(node, value)
    return node.value_of(places, (None, count))


def _places_of(node: SizedNode, value: SizedValue) -> tuple[Tensor, Tensor]:
    """The coordinates of what is not zero, and their number."""

    def make() -> tuple[Tensor, Tensor]:
        x = node.masked(value, np.False_ if value.padded.type.dtype is DType.BOOL else 0)
        bound = node.bound_of(x.type.size)
        attributes: AttributeMap = {"bound": bound, "tensor": node.result_name()}
        places, count = node.emit_all("NonZero", [x], attributes)
        return places, count

    found: tuple[Tensor, Tensor] = node.once(("NonZero", value, _own_bound(node)), make)
    return found


def _own_bound(node: SizedNode) -> object:
    """The bound that the user gives the result, which must not be shared then."""
    return node.table.bounds.matching(node.result_name())


def _compress(node: SizedNode) -> Value:
    value, condition = node.sized(0), node.sized(1)
    if any(condition.counts) and node.has("axis") and len(condition.counts) != 1:
        raise ModelError("the condition must have one dimension")
    axis = 0
    if node.has("axis"):
        axis = normal_axis(node.integer("axis"), len(value.counts))
    elif len(value.counts) != 1:
        if any(value.counts):
            raise node.refuse("selects elements of a tensor of several sizes that data decides")
        size = value.padded.type.size
        value = SizedValue(node.emit("Reshape", [value.padded], {"shape": (size,)}), (None,))
    places, count = _places_of(node, condition)
    flat = node.emit("Reshape", [places], {"shape": (places.type.size,)})
    flat = _within(node, SizedValue(flat, (count,)), node.count(value, axis))
    result = gathered_along(node, value, axis, flat, count)
    return node.value_of(result.padded, result.counts)


def _unique(node: SizedNode) -> list[Value]:
    value = node.sized(0)
    if node.has("axis"):
        axis = normal_axis(node.integer("axis"), len(value.counts))
        if any(count for place, count in enumerate(value.counts) if place != axis):
            raise node.refuse("compares slices of sizes that data decides")
    else:
        axis = 0
        if len(value.counts) != 1:
            if any(value.counts):
                raise node.refuse("sorts a tensor of several dimensions of sizes that data decides")
            size = value.padded.type.size
            value = SizedValue(node.emit("Reshape", [value.padded], {"shape": (size,)}), (None,))
    attributes: AttributeMap = {
        "axis": axis,
        "bound": node.bound_of(value.padded.type.shape[axis]),
        "sorted": int(bool(node.integer("sorted", 1))),
        "tensor": node.result_name(),
    }
    values, first, inverse, counts, count = node.emit_all(
        "Unique", [value.padded, value.counts[axis]], attributes
    )
    selected = [*value.counts[:axis], count, *value.counts[axis + 1 :]]
    return [
        node.value_of(values, selected),
        node.value_of(first, [count]),
        node.value_of(inverse, [value.counts[axis]]),
        node.value_of(counts, [count]),
    ]


def _non_max_suppression(node: SizedNode) -> Value:
    """The most that can be selected: ``limit`` of each class, or all boxes."""
    boxes, scores = node.sized(0), node.sized(1)
    if boxes.counts[::2] != (None, None) or any(scores.counts[:2]):
        raise node.refuse("takes a number of boxes that data decides, but of nothing else")
    dim = min(boxes.padded.type.shape[1], scores.padded.type.shape[2])
    limit = node.int64(0) if node.optional(2) is None else node.as_int64(node.scalar(2))
    count = boxes.counts[1] or scores.counts[2]
    if boxes.counts[1] is not None and scores.counts[2] is not None:
        count = node.same(boxes.counts[1], scores.counts[2])
    most = node.table.range(node.table.scalar(limit))[1]
    each = int(max(min(most, dim), 0))
    bound = node.bound_of(prod(scores.padded.type.shape[:2]) * each)
    overlap = node.constant(np.float32(0)) if node.optional(3) is None else node.scalar(3)
    threshold = None if node.optional(4) is None else node.scalar(4)
    rows, selected = node.emit_all(
        "NonMaxSuppression",
        [
            node.cropped(boxes.padded, 1, dim),
            node.cropped(scores.padded, 2, dim),
            limit,
            overlap,
            threshold,
            count,
        ],
        {
            "bound": bound,
            "center_point_box": int(bool(node.integer("center_point_box", 0))),
            "tensor": node.result_name(),
        },
    )
    return node.value_of(rows, (selected, None))


# -- gather ----------------------------------------------------------------------------------------


def _within(node: SizedNode, indices: SizedValue, sizes: Tensor, padding: int = 0) -> Tensor:
    """Indices from the front, checked against sizes; padding becomes ``padding``."""
    mask = node.valid(indices)
    return node.emit("PlacesWithin", [indices.padded, sizes, mask], {"padding": padding})


def _gather(node: SizedNode) -> Value:
    x, indices = node.sized(0), node.sized(1)
    axis = normal_axis(node.integer("axis", 0), len(x.counts))
    places = indices.padded
    if x.counts[axis] is not None or any(indices.counts):
        places = _within(node, indices, node.count(x, axis))
    counts = [*x.counts[:axis], *indices.counts, *x.counts[axis + 1 :]]
    if x.padded.type.shape[axis] == 0 and places.type.size:
        shape = x.padded.type.shape
        whole = (*shape[:axis], *places.type.shape, *shape[axis + 1 :])
        zeros = node.constant(0, x.padded.type.dtype)
        return node.value_of(node.emit("Expand", [zeros], {"shape": whole}), counts)
    padded = node.emit("Gather", [x.padded, places], {"axis": axis})
    return node.value_of(padded, counts)


def _gather_elements(node: SizedNode) -> Value:
    """Indices may be fewer than the data along other axes, also than its padding."""
    x, indices = node.sized(0), node.sized(1)
    axis = normal_axis(node.integer("axis", 0), len(x.counts))
    places, data = _within(node, indices, node.count(x, axis)), x.padded
    for other, dim in enumerate(places.type.shape):
        if other != axis and dim > data.type.shape[other]:
            data = node.cropped(data, other, dim)
    if data.type.shape[axis] == 0:
        data = node.cropped(data, axis, 1)
    padded = node.emit("GatherElements", [data, places], {"axis": axis})
    return node.value_of(padded, indices.counts)


def _tuples(
    node: SizedNode, x: SizedValue, indices: SizedValue, padding: int = 0
) -> tuple[Tensor, int]:
    """Index tuples within the leading axes that they name, and the number of these."""
    depth = indices.padded.type.shape[-1]
    if indices.counts[-1] is not None or depth > len(x.counts):
        raise node.refuse("data decides the length of index tuples")
    lists = [node.emit("Reshape", [node.count(x, axis)], {"shape": (1,)}) for axis in range(depth)]
    sizes = node.emit("Concat", lists, {"axis": 0}) if depth > 1 else lists[0]
    return _within(node, indices, sizes, padding), depth


def _gather_nd(node: SizedNode) -> Value:
    if node.integer("batch_dims", 0):
        raise node.refuse("has batches of a size that data decides")
    x, indices = node.sized(0), node.sized(1)
    places, depth = _tuples(node, x, indices)
    counts = [*indices.counts[:-1], *x.counts[depth:]]
    data = x.padded
    for axis in range(depth):
        if data.type.shape[axis] == 0:
            data = node.cropped(data, axis, 1)
    return node.value_of(node.emit("GatherND", [data, places], {"batch_dims": 0}), counts)


# -- scatter ---------------------------------------------------------------------------------------


def _scatter_nd(node: SizedNode) -> Value:
    """Padding is written to a row behind the data, which is cut off again."""
    x, indices, updates = (node.sized(index) for index in range(3))
    size = x.padded.type.shape[0]
    places, depth = _tuples(node, x, indices, padding=size)
    wanted = SizedValue(
        node.emit("Expand", [node.constant(0, updates.padded.type.dtype)],
                  {"shape": (*places.type.shape[:-1], *x.padded.type.shape[depth:])}),
        (*indices.counts[:-1], *x.counts[depth:]),
    )  # fmt: skip
    tensors, _ = spread_together(node, [wanted, updates])
    assert tensors[1] is not None
    shape = tensors[1].type.shape
    places = _cut_to(node, places, shape[: places.type.rank - 1])
    data = _cut_to(node, x.padded, shape[places.type.rank - 1 :], depth)
    data = node.cropped(data, 0, size + _TRASH)
    attributes = {"reduction": node.text("reduction", "none")}
    written = node.emit("ScatterND", [data, places, tensors[1]], attributes)
    written = node.cropped(written, 0, size)
    return node.value_of(written, x.counts)


def _cut_to(node: SizedNode, x: Tensor, dims: Sequence[int], first: int = 0) -> Tensor:
    for axis, dim in enumerate(dims, first):
        x = node.cropped(x, axis, dim)
    return x


def _scatter_elements(node: SizedNode) -> Value:
    x, indices, updates = (node.sized(index) for index in range(3))
    axis = normal_axis(node.integer("axis", 0), len(x.counts))
    size = x.padded.type.shape[axis]
    tensors, counts = spread_together(node, [indices, updates])
    assert tensors[0] is not None
    assert tensors[1] is not None
    own = SizedValue(tensors[0], tuple(counts))
    places = _within(node, own, node.count(x, axis), padding=size)
    data, values = node.cropped(x.padded, axis, size + _TRASH), tensors[1]
    for other, dim in enumerate(places.type.shape):
        if other != axis and dim > data.type.shape[other]:
            raise node.refuse("has more padding along other axes than its data")
    attributes: AttributeMap = {"axis": axis, "reduction": node.text("reduction", "none")}
    written = node.emit("ScatterElements", [data, places, values], attributes)
    return node.value_of(node.cropped(written, axis, size), x.counts)


# -- regions ---------------------------------------------------------------------------------------


def _roi_align(node: SizedNode) -> Value:
    x, regions, batches = (node.sized(index) for index in range(3))
    if any(x.counts) or regions.counts[1] is not None:
        raise node.refuse("takes a number of regions that data decides, but of nothing else")
    own = SizedValue(node.masked(regions, 0), regions.counts)
    numbers = SizedValue(node.masked(batches, 0), batches.counts)
    lists = SizedValue(
        node.emit("Reshape", [numbers.padded], {"shape": (*numbers.padded.type.shape, 1)}),
        (*numbers.counts, None),
    )
    tensors, counts = spread_together(node, [own, lists])
    assert tensors[1] is not None
    flat = node.emit("Reshape", [tensors[1]], {"shape": tensors[1].type.shape[:1]})
    (pooled,) = node.plain([x.padded, tensors[0], flat])
    return node.value_of(pooled, (counts[0], None, None, None))


def _grid_sample(node: SizedNode) -> Value:
    """Positions of which data decides the number: what padding names is read, and stays padding."""
    x, grid = node.sized(0), node.sized(1)
    if any(x.counts) or grid.counts[0] is not None or grid.counts[-1] is not None:
        raise node.refuse("takes a number of positions that data decides, but of nothing else")
    (found,) = node.plain([x.padded, grid.padded])
    return node.value_of(found, (None, None, *grid.counts[1:-1]))


RULES: Final[dict[str, SizedRule]] = {
    "Compress": _compress,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "GridSample": _grid_sample,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _non_zero,
    "RoiAlign": _roi_align,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Unique": _unique,
}
