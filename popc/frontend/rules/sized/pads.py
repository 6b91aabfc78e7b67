"""Pad of a tensor whose sizes data decides, or by amounts that data decides."""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.frontend.rules.common import integers_of
from popc.frontend.rules.onnx.pad import emit_pad
from popc.frontend.rules.sized.node import SizedNode, SizedRule
from popc.frontend.rules.sized.shapes import gathered_along
from popc.frontend.values import SizedValue, Value
from popc.ir import Tensor
from popc.ops.infer import check_choice, normal_axis
from popc_runtime.errors import ModelError
from popc_runtime.ground.frozen import frozen

__all__ = ["RULES"]


@frozen
class _Amounts:
    """The pads of an axis."""

    axis: int
    begin: Tensor
    end: Tensor


def _pad(node: SizedNode) -> Value:
    """Axes by which nothing has to be known at run time are padded together, as they always are."""
    value = node.sized(0)
    mode = node.text("mode", "constant")
    check_choice({"mode": mode}, "mode", ("constant", "edge", "reflect", "wrap"))
    amounts = _amounts(node, len(value.counts))
    known = {pads.axis: found for pads in amounts if (found := _known(node, pads)) is not None}
    moving = [pads for pads in amounts if not _is_still(value, pads, known, mode)]
    still = {axis: pair for axis, pair in known.items() if axis not in {p.axis for p in moving}}
    if any(map(any, still.values())):
        value = _padded(node, value, still)
    for pads in moving:
        value = _along(node, value, pads, mode)
    return node.value_of(value.padded, value.counts)


def _amounts(node: SizedNode, rank: int) -> list[_Amounts]:
    axes = integers_of(node, 3, "axes", "the set of padded axes") or tuple(range(rank))
    pads = node.integers_in(1, "paddings" if node.version < 2 else "pads")
    if len(pads) != 2 * len(axes):
        raise ModelError("pads must be two numbers for each axis")
    places = [normal_axis(axis, rank) for axis in axes]
    return [
        _Amounts(*each) for each in zip(places, pads[: len(axes)], pads[len(axes) :], strict=True)
    ]


def _known(node: SizedNode, pads: _Amounts) -> tuple[int, int] | None:
    begin, end = node.table.scalar(pads.begin).known, node.table.scalar(pads.end).known
    return None if begin is None or end is None else (begin, end)


def _is_still(
    value: SizedValue, pads: _Amounts, known: dict[int, tuple[int, int]], mode: str
) -> bool:
    """True if an axis can be padded without a look at what runs: constants go where data ends."""
    found = known.get(pads.axis)
    if found is None:
        return False
    if value.counts[pads.axis] is None or not any(found):
        return True
    return mode == "constant" and min(found) >= 0


def _padded(node: SizedNode, value: SizedValue, pads: dict[int, tuple[int, int]]) -> SizedValue:
    """Axes padded by known numbers, behind the most that their size can be."""
    counts = list(value.counts)
    moving: list[int] = []
    for axis, (begin, end) in pads.items():
        count = counts[axis]
        if count is not None and (begin or end):
            moving.append(axis)
            counts[axis] = node.add(count, node.int64(begin + end))
    x = value.padded
    if moving:
        x = node.emit("Where", [node.valid(value, moving), x, _fill(node, x)])
    pairs = [pads.get(axis, (0, 0)) for axis in range(len(counts))]
    flat = (*(begin for begin, _ in pairs), *(end for _, end in pairs))
    padded = emit_pad(node, x, flat)
    return SizedValue(padded, tuple(counts))


def _along(node: SizedNode, value: SizedValue, pads: _Amounts, mode: str) -> SizedValue:
    """An axis of which each place takes the element that it repeats, or the constant.

    Negative amounts take elements away before others are added.
    """
    axis, zero = pads.axis, node.int64(0)
    lost = node.smallest(pads.begin, zero), node.smallest(pads.end, zero)
    size = node.count(value, axis)
    kept = node.add(node.add(size, lost[0]), lost[1])
    total = node.add(size, node.add(pads.begin, pads.end))
    count, bound = node.planned(total)
    behind = node.emit("Sub", [node.iota(bound), node.largest(pads.begin, zero)])
    first = node.sub(zero, lost[0])
    if mode == "constant":
        return _with_constant(node, value, axis, (behind, first, kept, count))
    places = _repeated(node, behind, kept, mode)
    mask = node.valid(SizedValue(places, (count,)))
    places = node.emit("PlacesWithin", [places, kept, mask], {"padding": 0})
    return gathered_along(node, value, axis, node.emit("Add", [places, first]), count)


def _with_constant(
    node: SizedNode, value: SizedValue, axis: int, places: tuple[Tensor, Tensor, Tensor, Tensor]
) -> SizedValue:
    behind, first, kept, count = places
    own = gathered_along(node, value, axis, node.emit("Add", [behind, first]), count)
    within = node.emit(
        "And",
        [
            node.emit("GreaterOrEqual", [behind, node.int64(0)]),
            node.emit("Less", [behind, kept]),
        ],
    )
    shape = (behind.type.size, *(1,) * (len(value.counts) - axis - 1))
    mask = node.emit("Reshape", [within], {"shape": shape})
    filled = node.emit("Where", [mask, own.padded, _fill(node, own.padded)])
    return SizedValue(filled, own.counts)


def _fill(node: SizedNode, x: Tensor) -> Tensor:
    """The constant: an attribute in old opsets."""
    if node.version < 11:
        return node.constant(np.asarray(node.number("value", 0.0)), x.type.dtype)
    return node.constant(0, x.type.dtype) if node.optional(2) is None else node.scalar(2)


def _repeated(node: SizedNode, places: Tensor, size: Tensor, mode: str) -> Tensor:
    """The place among ``size`` elements of what stands at ``places`` from the first of them."""
    one = node.int64(1)
    last = node.emit("Sub", [size, one])
    if mode == "wrap":
        return node.emit("Mod", [places, node.emit("Max", [size, one])])
    if mode == "edge":
        within = node.emit("Min", [places, last])
        return node.emit("Max", [within, node.int64(0)])
    period = node.emit("Max", [node.emit("Add", [last, last]), one])
    from_last = node.emit("Sub", [last, node.emit("Mod", [places, period])])
    return node.emit("Sub", [last, node.emit("Abs", [from_last])])


RULES: Final[dict[str, SizedRule]] = {"Pad": _pad}
