"""Shapes and what is made of them: Reshape, Expand, Tile, Range, and their kin."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np

from popc.frontend.rules.common import known_scalar
from popc.frontend.rules.sized.node import SizedNode, SizedRule
from popc.frontend.rules.sized.regroup import NewAxis, regrouped
from popc.frontend.values import SizedValue, Value
from popc.ir import Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES", "gathered_along", "reshaped_to"]


_MOST_ROOM: Final = 256  # times as large as an operand may be what it is reshaped to


def _shape(node: SizedNode) -> Value:
    """From opset 15 on, a part of the shape, with the bounds clamped."""
    value = node.sized(0)
    end = node.integer("end") if node.has("end") else len(value.counts)
    axes = range(len(value.counts))[node.integer("start", 0) : end]
    return _listed(node, [node.count(value, axis) for axis in axes])


def _listed(node: SizedNode, numbers: Sequence[Tensor]) -> Tensor:
    if not numbers:
        return node.constant(np.zeros(0, np.int64))
    lists = [node.emit("Reshape", [number], {"shape": (1,)}) for number in numbers]
    return node.emit("Concat", lists, {"axis": 0}) if len(lists) > 1 else lists[0]


def _size(node: SizedNode) -> Value:
    return _product(node, node.sized(0), range(len(node.sized(0).counts)))


def _product(node: SizedNode, value: SizedValue, axes: Sequence[int]) -> Tensor:
    total = node.int64(1)
    for axis in axes:
        total = node.mul(total, node.count(value, axis))
    return total


def _reshape(node: SizedNode) -> Value:
    value = node.sized(0)
    wanted = node.integers_in(1, "shape")
    keep_zeros = node.version >= 14 and bool(node.integer("allowzero", 0))
    numbers = [node.table.scalar(number).known for number in wanted]
    if numbers.count(-1) > 1:
        raise ModelError("-1 stands more than once in a shape")
    counts = list(wanted)
    for axis, number in enumerate(wanted):
        if not keep_zeros and axis < len(value.counts):
            counts[axis] = _chosen(node, number, 0, node.count(value, axis))
    total = _product(node, value, range(len(value.counts)))
    rest = node.int64(1)
    for count in counts:
        rest = node.mul(rest, _chosen(node, count, -1, node.int64(1)))
    counts = [_chosen(node, count, -1, total, rest) for count in counts]
    return reshaped_to(node, value, counts)


def _chosen(
    node: SizedNode, count: Tensor, special: int, other: Tensor, divisor: Tensor | None = None
) -> Tensor:
    """A size; in place of the number ``special`` another (over ``divisor``)."""
    low, high = node.table.range(node.table.scalar(count))
    if not low <= special <= high:
        return count
    if divisor is not None:
        other = node.div(other, divisor)
    if low == high:
        return other
    is_special = node.emit("Equal", [count, node.int64(special)])
    return node.noted(node.emit("Where", [is_special, other, count]))


def reshaped_to(node: SizedNode, value: SizedValue, counts: Sequence[Tensor]) -> Value:
    """A tensor with another shape, of as many elements."""
    whole = prod(value.padded.type.shape)
    if not whole and not all(node.table.scalar(count).known is not None for count in counts):
        raise node.refuse("nothing bounds the sizes of a tensor without elements")
    targets: list[NewAxis] = []
    for count in counts:
        known = node.table.scalar(count).known
        if known is None:
            targets.append(NewAxis(*node.planned(count, whole)))
        else:
            targets.append(NewAxis(None, known))
    room = prod(target.dim for target in targets)
    if room > max(_MOST_ROOM * whole, _MOST_ROOM**2):
        raise node.refuse(
            f"its result has room for {room:,} elements, although there are at most {whole:,} "
            f"(give the most that its sizes can be: --bound {node.result_name()}=N)"
        )
    padded = regrouped(node, value, targets)
    return node.value_of(padded, [target.count for target in targets])


def _flatten(node: SizedNode) -> Value:
    value = node.sized(0)
    rank = len(value.counts)
    axis = node.integer("axis", 1)
    axis = axis if axis == rank else normal_axis(axis, rank)
    counts = [_product(node, value, range(axis)), _product(node, value, range(axis, rank))]
    return reshaped_to(node, value, counts)


def _squeeze(node: SizedNode) -> Value:
    value = node.sized(0)
    rank = len(value.counts)
    axes = [node.table.scalar(number).known for number in node.integers_in(1, "axes")]
    if any(axis is None for axis in axes):
        raise node.refuse("the rank of its result depends on a run-time value")
    gone = {normal_axis(axis, rank) for axis in axes if axis is not None}
    if not gone:
        if any(value.counts):
            raise node.refuse("the rank of its result depends on a run-time value")
        return node.plain([value.padded])[0]
    counts = list(value.counts)
    padded = value.padded
    for axis in gone:
        count = counts[axis]
        if count is not None:
            padded = node.exactly(padded, axis, count, 1)
    kept = [axis for axis in range(rank) if axis not in gone]
    shape = tuple(padded.type.shape[axis] for axis in kept)
    return node.value_of(
        node.emit("Reshape", [padded], {"shape": shape}), [counts[axis] for axis in kept]
    )


def _unsqueeze(node: SizedNode) -> Value:
    value = node.sized(0)
    axes = [node.table.scalar(number).known for number in node.integers_in(1, "axes")]
    rank = len(value.counts) + len(axes)
    new = {normal_axis(axis, rank) for axis in axes if axis is not None}
    if len(new) != len(axes):
        raise node.refuse("the axes of its result depend on a run-time value")
    dims, old = iter(value.padded.type.shape), iter(value.counts)
    shape = tuple(1 if axis in new else next(dims) for axis in range(rank))
    counts = [None if axis in new else next(old) for axis in range(rank)]
    return node.value_of(node.emit("Reshape", [value.padded], {"shape": shape}), counts)


def _transpose(node: SizedNode) -> Value:
    value = node.sized(0)
    perm = node.integers("perm", range(len(value.counts))[::-1])
    (padded,) = node.plain([value.padded])
    return node.value_of(padded, [value.counts[axis] for axis in perm])


# -- enlarging -------------------------------------------------------------------------------------


def _expand(node: SizedNode) -> Value:
    return _expanded(node, node.sized(0), node.integers_in(1))


def _expanded(node: SizedNode, value: SizedValue, wanted: Sequence[Tensor]) -> Value:
    """A tensor that spreads over a shape; a size that only one of both has is that of the result.

    At run time the sizes must be equal, or one of them certainly 1.
    """
    rank = max(len(wanted), len(value.counts))
    dims = (1,) * (rank - len(value.counts)) + value.padded.type.shape
    old = (None,) * (rank - len(value.counts)) + value.counts
    new = [node.int64(1)] * (rank - len(wanted)) + list(wanted)
    sizes = [_spread(node, *axis) for axis in zip(dims, old, new, strict=True)]
    shape, counts = tuple(dim for dim, _ in sizes), [count for _, count in sizes]
    padded = node.emit("Reshape", [value.padded], {"shape": dims}) if rank else value.padded
    for axis, (dim, target) in enumerate(zip(dims, new, strict=True)):
        if old[axis] is None and dim != 1 and node.table.scalar(target).known is None:
            padded = node.exactly(padded, axis, _or_one(node, target, dim), dim)
    if padded.type.shape != shape:
        padded = node.emit("Expand", [padded], {"shape": shape})
    return node.value_of(padded, counts)


def _or_one(node: SizedNode, target: Tensor, dim: int) -> Tensor:
    """``target``, or ``dim`` if it is 1: what a dimension of ``dim`` may spread over."""
    is_one = node.emit("Equal", [target, node.int64(1)])
    return node.noted(node.emit("Where", [is_one, node.int64(dim), target]))


def _spread(
    node: SizedNode, dim: int, count: Tensor | None, target: Tensor
) -> tuple[int, Tensor | None]:
    """The size of an axis, and its count, that spreads over ``target``."""
    known = node.table.scalar(target).known
    if count is not None:
        return dim, count if known == 1 else node.same(count, target)
    if dim == 1 and known is None:
        wanted, bound = node.planned(target)
        return bound, wanted
    if known not in (None, 1, dim) and dim != 1:
        raise ModelError(f"a dimension of {dim} does not spread over {known}")
    return (dim if dim != 1 or known is None else known), None


def _constant_of_shape(node: SizedNode) -> Value:
    type_, data = node.tensor("value") if node.has("value") else (None, np.zeros(1, np.float32))
    fill = node.constant(data.reshape(()), DType.FLOAT32 if type_ is None else type_.dtype)
    return _expanded(node, SizedValue(fill, ()), node.integers_in(0))


def _tile(node: SizedNode) -> Value:
    """Repetitions follow each other; each reads its place within the operand."""
    value = node.sized(0)
    repeats = node.integers_in(1)
    for axis, times in enumerate(repeats):
        if node.table.scalar(times).known == 1:
            continue
        size = node.count(value, axis)
        count, bound = node.planned(node.mul(size, times))
        places = node.emit("Mod", [node.iota(bound), node.largest(size, node.int64(1))])
        value = gathered_along(node, value, axis, places, count)
    return node.value_of(value.padded, value.counts)


def gathered_along(
    node: SizedNode, value: SizedValue, axis: int, places: Tensor, count: Tensor | None
) -> SizedValue:
    """The elements at places along an axis; of what is padding any, so it may lie anywhere."""
    dim = value.padded.type.shape[axis]
    if dim == 0:
        padded = node.cropped(value.padded, axis, places.type.size)
    else:
        limits = node.int64(0), node.int64(dim - 1)
        within = node.emit("Min", [node.emit("Max", [places, limits[0]]), limits[1]])
        padded = node.emit("Gather", [value.padded, within], {"axis": axis})
    return SizedValue(padded, (*value.counts[:axis], count, *value.counts[axis + 1 :]))


def _range(node: SizedNode) -> Value:
    """ONNX Range-11: start + delta * i, below the limit."""
    start, limit, delta = (node.scalar(index) for index in range(3))
    if not start.type.dtype.is_integer:
        return _float_range(node, start, limit, delta)
    step = known_scalar(node, 2)
    if step is None or step == 0:
        raise node.refuse("its step depends on a run-time value, or is 0")
    first = node.as_int64(start)
    count, bound = node.planned(node.steps(node.sub(node.as_int64(limit), first), int(step)))
    numbers = node.emit("Mul", [node.iota(bound), node.int64(int(step))])
    padded = node.emit("Add", [numbers, first])
    if start.type.dtype is not DType.INT64:
        padded = node.emit("Cast", [padded], {"to": start.type.dtype.value})
    return node.value_of(padded, [count])


def _float_range(node: SizedNode, start: Tensor, limit: Tensor, delta: Tensor) -> Value:
    distance = node.emit("Div", [node.emit("Sub", [limit, start]), delta])
    steps = node.emit("Cast", [node.emit("Ceil", [distance])], {"to": DType.INT64.value})
    count, bound = node.planned(node.largest(steps, node.int64(0)))
    numbers = node.emit("Cast", [node.iota(bound)], {"to": start.type.dtype.value})
    padded = node.emit("Add", [node.emit("Mul", [numbers, delta]), start])
    return node.value_of(padded, [count])


RULES: Final[dict[str, SizedRule]] = {
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Flatten": _flatten,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
