"""Parts and joins along axes whose size data decides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from popc.frontend.rules.common import integers_of
from popc.frontend.rules.moves import emit_slice, with_axis
from popc.frontend.rules.onnx.sequence import split_parts
from popc.frontend.rules.sized.node import SizedNode, SizedRule, sized
from popc.frontend.rules.sized.shapes import gathered_along
from popc.frontend.rules.sized.spread import spread_together
from popc.frontend.values import SequenceValue, SizedValue, Value
from popc.ir import AttributeMap, Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError

__all__ = ["RULES", "appended", "joined"]


def _concat(node: SizedNode) -> Value:
    values = [sized(value) for value in node.inputs]
    axis = node.integer("axis", 1 if node.version < 4 else None)
    return _behind_each_other(node, values, normal_axis(axis, len(values[0].counts)))


def _concat_from_sequence(node: SizedNode) -> Value:
    """The elements of a sequence, or with ``new_axis`` each as one place of another axis."""
    values = [sized(item) for item in node.sequence(0).items]
    stacks = bool(node.integer("new_axis", 0))
    axis = normal_axis(node.integer("axis"), len(values[0].counts) + stacks)
    if stacks:
        values = [
            SizedValue(with_axis(node, value.padded, axis), _without(value.counts, axis, None))
            for value in values
        ]
    return _behind_each_other(node, values, axis)


def _behind_each_other(node: SizedNode, values: Sequence[SizedValue], axis: int) -> Value:
    values = [value for value in values if not _is_empty(value, axis)] or values[:1]
    if len(values) == 1:
        return node.value_of(values[0].padded, values[0].counts)
    longer = appended(node, values[0], values[1], axis) if len(values) == 2 else None
    return longer or joined(node, values, axis)


def _is_empty(value: SizedValue, axis: int) -> bool:
    """True if it has no places along an axis: exporters join to what is empty at first."""
    return axis < len(value.counts) and value.padded.type.shape[axis] == 0


def appended(node: SizedNode, cache: SizedValue, new: SizedValue, axis: int) -> SizedValue | None:
    """A cache with new rows behind its own, written where they belong; ``None`` if it is none."""
    shape = cache.padded.type.shape
    place, rows = node.importer.context.caches.get(cache.padded, (-1, 0))
    start = cache.counts[place] if place == axis else None
    fits = new.padded.type.shape == (*shape[:axis], rows, *shape[axis + 1 :])
    if start is None or any(new.counts) or not fits:
        return None
    window: AttributeMap = {"axes": (axis,), "sizes": (rows,)}
    padded = node.emit("DynamicUpdate", [cache.padded, start, new.padded], window)
    total = node.add(start, node.int64(rows))
    return SizedValue(padded, (*cache.counts[:axis], total, *cache.counts[axis + 1 :]))


def joined(node: SizedNode, values: Sequence[SizedValue], axis: int) -> Value:
    """Tensors behind each other along an axis: only the last may have padding between."""
    if len({len(value.counts) for value in values}) != 1:
        raise ModelError("tensors of different ranks cannot be joined")
    # The other axes are the same in all; along the axis itself nothing is compared.
    swapped = [_moved_last(node, value, axis) for value in values]
    tensors, counts = spread_together(node, swapped, last=1)
    rank = len(values[0].counts)
    back = (*range(axis), rank - 1, *range(axis, rank - 1))
    parts = [
        SizedValue(_transposed(node, tensor, back), _without(counts, axis, value.counts[axis]))
        for tensor, value in zip(tensors, values, strict=True)
        if tensor is not None
    ]
    padded = node.emit("Concat", [part.padded for part in parts], {"axis": axis})
    whole = SizedValue(padded, _without(counts, axis, None))
    if not any(part.counts[axis] for part in parts):
        return node.value_of(whole.padded, whole.counts)
    total = node.int64(0)
    for part in parts:
        total = node.add(total, node.count(part, axis))
    count, bound = node.planned(total, padded.type.shape[axis])
    if not any(part.counts[axis] for part in parts[:-1]):
        cut = node.cropped(padded, axis, bound)
        return node.value_of(cut, _without(counts, axis, count))
    places = _places_of_parts(node, parts, axis, bound)
    result = gathered_along(node, whole, axis, places, count)
    return node.value_of(result.padded, result.counts)


def _without(
    counts: Sequence[Tensor | None], axis: int, own: Tensor | None
) -> tuple[Tensor | None, ...]:
    return (*counts[:axis], own, *counts[axis:])


def _moved_last(node: SizedNode, value: SizedValue, axis: int) -> SizedValue:
    rank = len(value.counts)
    perm = (*(other for other in range(rank) if other != axis), axis)
    padded = _transposed(node, value.padded, perm)
    return SizedValue(padded, tuple(value.counts[other] for other in perm))


def _transposed(node: SizedNode, x: Tensor, perm: tuple[int, ...]) -> Tensor:
    return x if perm == tuple(range(len(perm))) else node.emit("Transpose", [x], {"perm": perm})


def _places_of_parts(node: SizedNode, parts: Sequence[SizedValue], axis: int, bound: int) -> Tensor:
    """The places of elements that follow each other: behind a part its padding is skipped."""
    places = node.iota(bound)
    shifted = places
    end = node.int64(0)
    for part in parts[:-1]:
        size = node.count(part, axis)
        end = node.add(end, size)
        skipped = node.sub(node.int64(part.padded.type.shape[axis]), size)
        behind = node.emit("GreaterOrEqual", [places, end])
        skip = node.emit("Where", [behind, skipped, node.int64(0)])
        shifted = node.emit("Add", [shifted, skip])
    return shifted


def _slice(node: SizedNode) -> Value:
    value = node.sized(0)
    starts, ends = node.integers_in(1, "starts"), node.integers_in(2, "ends")
    what = "the size of the slice"
    axes = integers_of(node, 3, "axes", what) or tuple(range(len(starts)))
    steps = integers_of(node, 4, "steps", what) or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ModelError("starts, ends, axes and steps differ in length")
    if 0 in steps:
        raise ModelError("a slice by step 0")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place = normal_axis(axis, len(value.counts))
        value = _window(node, value, place, (start, end, step))
    return node.value_of(value.padded, value.counts)


def _window(
    node: SizedNode, value: SizedValue, axis: int, window: tuple[Tensor, Tensor, int]
) -> SizedValue:
    """A slice along one axis; numbers below zero count from the end, limits are clamped."""
    start, end, step = window
    size = node.count(value, axis)
    zero, one = node.int64(0), node.int64(1)
    low, high = (zero, size) if step > 0 else (node.int64(-1), node.sub(size, one))
    first = _from_front(node, start, size)
    first = node.smallest(node.largest(first, zero), high)
    last = node.smallest(node.largest(_from_front(node, end, size), low), high)
    dim = value.padded.type.shape[axis]
    most = -(-dim // abs(step))
    count, bound = node.planned(node.steps(node.sub(last, first), step), most)
    known = node.table.scalar(first).known
    if known is not None and step > 0 and known + (bound - 1) * step < dim:
        windows = [range(size) for size in value.padded.type.shape]
        windows[axis] = range(known, known + bound * step, step)
        padded = emit_slice(node, value.padded, windows)
        counts = (*value.counts[:axis], count, *value.counts[axis + 1 :])
        return SizedValue(padded, counts)
    steps = node.emit("Mul", [node.iota(bound), node.int64(step)])
    return gathered_along(node, value, axis, node.emit("Add", [steps, first]), count)


def _from_front(node: SizedNode, number: Tensor, size: Tensor) -> Tensor:
    low, high = node.table.range(node.table.scalar(number))
    if low >= 0:
        return number
    counted = node.add(number, size)
    if high < 0:
        return counted
    negative = node.emit("Less", [number, node.int64(0)])
    return node.noted(node.emit("Where", [negative, counted, number]))


def _split(node: SizedNode) -> list[Value]:
    """Parts of sizes that may be data's, too; without sizes only of an axis whose size is known."""
    value = node.sized(0)
    axis = normal_axis(node.integer("axis", 0), len(value.counts))
    sizes = node.integers_in(1, "split") if len(node.inputs) > 1 or node.has("split") else []
    if not sizes:
        if value.counts[axis] is not None:
            raise node.refuse("cuts an axis whose size data decides into equal parts")
        return [node.value_of(part, value.counts) for part in node.plain([value.padded])]
    ends = list(accumulate(sizes, node.add))
    starts = [node.int64(0), *ends[:-1]]
    parts = [
        _window(node, value, axis, (start, end, 1)) for start, end in zip(starts, ends, strict=True)
    ]
    return [node.value_of(part.padded, part.counts) for part in parts]


def _split_to_sequence(node: SizedNode) -> SequenceValue:
    """Parts along an axis of known size, which may lose it."""
    value = node.sized(0)
    axis = normal_axis(node.integer("axis", 0), len(value.counts))
    if value.counts[axis] is not None:
        raise node.refuse("cuts an axis whose size data decides")
    parts = split_parts(node, value.padded)
    others = (*value.counts[:axis], *value.counts[axis + 1 :])
    items = [
        node.value_of(part, value.counts if part.type.rank == len(value.counts) else others)
        for part in parts
    ]
    return SequenceValue(tuple(items), value.padded.type.dtype)


RULES: Final[dict[str, SizedRule]] = {
    "Concat": _concat,
    "ConcatFromSequence": _concat_from_sequence,
    "Slice": _slice,
    "Split": _split,
    "SplitToSequence": _split_to_sequence,
}
