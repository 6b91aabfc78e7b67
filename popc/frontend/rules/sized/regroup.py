"""Another shape for a padded tensor.

Axes of both shapes that make up each other are put into groups.  A group of one axis on either
side stays as it is.  Where only the first axis of a group has a size that data decides, elements
that count come first, before and after.  In all other groups they are gathered: each place of the
result knows its number among those that count, and so its place in the operand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from popc.frontend.rules.sized.node import SizedNode
from popc.frontend.sizes import Size
from popc.frontend.values import SizedValue
from popc.ir import Tensor
from popc_runtime.ground.frozen import frozen

__all__ = ["NewAxis", "regrouped"]


@frozen
class NewAxis:
    """An axis of a shape: its size where data decides it, and the most that it can be."""

    count: Tensor | None
    dim: int


def regrouped(node: SizedNode, value: SizedValue, targets: list[NewAxis]) -> Tensor:
    """``value`` in the shape of ``targets``, padded; their ``dim`` may become another.

    Raises:
        ModelError: the shapes certainly have different numbers of elements.
    """
    sources = [
        NewAxis(count, dim)
        for count, dim in zip(value.counts, value.padded.type.shape, strict=True)
    ]
    done: list[NewAxis] = []
    padded = value.padded
    for first, last in _groups(node, sources, targets):
        old, new = sources[slice(*first)], targets[slice(*last)]
        new = _checked(node, old, new)
        behind = sources[first[1] :]
        padded, made = _regroup(node, padded, (done, old, behind), new)
        targets[slice(*last)] = made
        done.extend(made)
    return _reshape(node, padded, [target.dim for target in targets])


def _reshape(node: SizedNode, x: Tensor, dims: Sequence[int]) -> Tensor:
    shape = tuple(dims)
    return x if x.type.shape == shape else node.emit("Reshape", [x], {"shape": shape})


def _sizes(node: SizedNode, axes: Sequence[NewAxis]) -> list[Size]:
    table = node.table
    return [
        table.constant(axis.dim) if axis.count is None else table.scalar(axis.count)
        for axis in axes
    ]


def _groups(
    node: SizedNode, sources: Sequence[NewAxis], targets: Sequence[NewAxis]
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The ranges of axes on both sides that make up each other, as few in each as can be."""
    old, new = _sizes(node, sources), _sizes(node, targets)
    i = j = 0
    while i < len(old) or j < len(new):
        ends = sorted(
            ((a, b) for a in range(i, len(old) + 1) for b in range(j, len(new) + 1)),
            key=lambda pair: (sum(pair), -min(pair[0] - i, pair[1] - j)),
        )
        product = node.table.product
        a, b = next(
            (
                (a, b)
                for a, b in ends
                if (a, b) != (i, j) and product(old[i:a]) == product(new[j:b])
            ),
            (len(old), len(new)),
        )
        yield (i, a), (j, b)
        i, j = a, b


def _regroup(
    node: SizedNode,
    padded: Tensor,
    around: tuple[Sequence[NewAxis], Sequence[NewAxis], Sequence[NewAxis]],
    new: Sequence[NewAxis],
) -> tuple[Tensor, list[NewAxis]]:
    """The axes ``old`` between others as ``new``; the tensor, and the axes with their padding."""
    before, old, behind = around
    outer, inner = prod(t.dim for t in before), prod(t.dim for t in behind)
    if not any(axis.count for axis in (*old, *new)):
        return padded, list(new)
    if sum(_is_wide(axis) for axis in old) == sum(_is_wide(axis) for axis in new) == 1:
        dim = next(axis.dim for axis in old if _is_wide(axis))
        return padded, [NewAxis(t.count, dim if _is_wide(t) else t.dim) for t in new]
    if not any(axis.count for axis in new):
        return _known(node, padded, (outer, old, inner), new)
    if _leads(old) and _leads(new):
        return _by_rows(node, padded, (outer, old, inner), new)
    return _gathered(node, padded, (outer, old, inner), new)


def _flat(
    node: SizedNode, padded: Tensor, around: tuple[int, Sequence[NewAxis], int]
) -> tuple[Tensor, int]:
    """The axes between others as one, and its size."""
    outer, old, inner = around
    whole = prod(axis.dim for axis in old)
    return _reshape(node, padded, (outer, whole, inner)), whole


def _gathered(
    node: SizedNode,
    padded: Tensor,
    around: tuple[int, Sequence[NewAxis], int],
    new: Sequence[NewAxis],
) -> tuple[Tensor, list[NewAxis]]:
    """Each place of the result takes the element that has its number."""
    flat, whole = _flat(node, padded, around)
    if not whole:
        return node.cropped(flat, 1, prod(axis.dim for axis in new)), list(new)
    return node.emit("Gather", [flat, _places(node, around[1], new)], {"axis": 1}), list(new)


def _checked(node: SizedNode, old: Sequence[NewAxis], new: Sequence[NewAxis]) -> list[NewAxis]:
    """``new`` with sizes that are checked at run time, unless both are certainly as many."""
    product = node.table.product
    lead = next((place for place, axis in enumerate(new) if axis.count is not None), None)
    if product(_sizes(node, old)) == product(_sizes(node, new)) or lead is None:
        return list(new)
    totals = [_total(node, old), _total(node, new)]
    rest = _total(node, [axis for place, axis in enumerate(new) if place != lead])
    count = node.div(node.same(*totals), rest)
    return [replace(t, count=count) if place == lead else t for place, t in enumerate(new)]


def _total(node: SizedNode, axes: Sequence[NewAxis]) -> Tensor:
    total = node.int64(1)
    for axis in axes:
        total = node.mul(total, _count(node, axis))
    return total


def _is_wide(axis: NewAxis) -> bool:
    return axis.count is not None or axis.dim != 1


def _leads(axes: Sequence[NewAxis]) -> bool:
    """True if only the first axis, but for those of size 1, has a size that data decides."""
    wide = [axis for axis in axes if _is_wide(axis)]
    return not any(axis.count for axis in wide[1:])


def _by_rows(
    node: SizedNode,
    padded: Tensor,
    around: tuple[int, Sequence[NewAxis], int],
    new: Sequence[NewAxis],
) -> tuple[Tensor, list[NewAxis]]:
    """Elements that count come first on both sides; only the number of padded rows may change."""
    flat, whole = _flat(node, padded, around)
    lead = next((place for place, axis in enumerate(new) if _is_wide(axis)), 0)
    row = prod(axis.dim for place, axis in enumerate(new) if place != lead)
    rows = new[lead].dim
    if new[lead].count is not None:
        rows = min(rows, -(-whole // max(row, 1)))
    made = [NewAxis(t.count, rows) if place == lead else t for place, t in enumerate(new)]
    return node.cropped(flat, 1, rows * row), made


def _known(
    node: SizedNode,
    padded: Tensor,
    around: tuple[int, Sequence[NewAxis], int],
    new: Sequence[NewAxis],
) -> tuple[Tensor, list[NewAxis]]:
    """Sizes of the result are known: those of the operand must turn out to be as many elements."""
    old = around[1]
    whole = prod(axis.dim for axis in new)
    total = _total(node, old)
    if _leads(old):
        flat, _ = _flat(node, padded, around)
        return node.exactly(flat, 1, total, whole), list(new)
    checked = node.same(total, node.int64(whole))
    flat, _ = _gathered(node, padded, around, [NewAxis(checked, whole)])
    return node.exactly(flat, 1, checked, whole), list(new)


def _places(node: SizedNode, old: Sequence[NewAxis], new: Sequence[NewAxis]) -> Tensor:
    """For each place of ``new``, padding included, the place in ``old`` of the same element."""
    dims = [axis.dim for axis in new]
    one = node.int64(1)
    number: Tensor = node.int64(0)
    for axis, coordinate in zip(new, _coordinates(node, dims), strict=True):
        number = node.emit("Add", [node.emit("Mul", [number, _count(node, axis)]), coordinate])
    total: Tensor = node.int64(0)
    stride = 1
    for place, axis in reversed(list(enumerate(old))):
        size = node.largest(_count(node, axis), one)
        coordinate = node.emit("Mod", [number, size]) if place else number
        number = node.emit("Div", [number, size])
        total = node.emit("Add", [total, node.emit("Mul", [coordinate, node.int64(stride)])])
        stride *= axis.dim
    top = node.int64(max(stride - 1, 0))
    return node.emit("Min", [node.emit("Max", [total, node.int64(0)]), top])


def _count(node: SizedNode, axis: NewAxis) -> Tensor:
    return node.int64(axis.dim) if axis.count is None else axis.count


def _coordinates(node: SizedNode, dims: Sequence[int]) -> list[Tensor]:
    """The coordinates of all places in order, a list for each axis."""
    node.require_room(prod(dims))
    return [node.constant(axis.reshape(-1)) for axis in np.indices(dims, np.int64)]
