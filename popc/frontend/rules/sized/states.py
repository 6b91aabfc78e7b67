"""States of a loop whose size changes from iteration to iteration: lists of tokens, caches.

A body is imported with states as large as they can be, and the sizes as further states.  How large
that is follows from an import on trial: what an iteration adds, as often as it runs.  Sizes that
begin as one and go on as one are one state, so that a body may rely on their being equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

from popc.frontend.node import Node
from popc.frontend.open_graph import OpenGraph
from popc.frontend.problems import AlreadyReported, DataDependent
from popc.frontend.rules.sized.node import SizedNode, sized
from popc.frontend.sizes import Size, SizeTable
from popc.frontend.values import SizedValue, Unknown, Value
from popc.ir import AttributeMap, Tensor
from popc_runtime.errors import ModelError
from popc_runtime.ground.frozen import frozen

__all__ = ["LoopStates"]

_TRIALS: Final = 8  # imports of a body until its sizes are settled


@frozen
class _Moving:
    """A size that data decides, of one axis or of several.

    Attributes:
        axes: Numbers of states with an axis each.
        most: The most that it can be.
        rows: What each iteration adds to it; 0 if that is not one number.
    """

    axes: tuple[tuple[int, int], ...]
    most: int
    rows: int = 0


class LoopStates:
    """The values that a loop carries on, as tensors: those of every state, then their sizes."""

    def __init__(self, node: Node, values: Sequence[Value]) -> None:
        self._node = node
        self._values = _as_sized(values)
        self._trials = 0
        self._moving: list[_Moving] = []
        self._before: dict[tuple[int, int], Size] = {}  # sizes at the beginning of an iteration
        places = [
            (number, axis)
            for number, value in enumerate(self._values)
            for axis, count in enumerate(value.counts)
            if count is not None
        ]
        if places:
            groups = _grouped({place: self._first(*place) for place in places})
            self._moving = [_Moving(axes, _room(self._values, axes)) for axes in groups]

    def initial(self) -> list[Tensor]:
        """The first values."""
        if not self._moving:
            return [value.padded for value in self._values]
        node = self._sized_node()
        padded = [value.padded for value in self._values]
        for moving in self._moving:
            for number, axis in moving.axes:
                padded[number] = node.cropped(padded[number], axis, moving.most)
        return [*padded, *self._checked(node, self._values)]

    def arguments(self, body: OpenGraph, inputs: Sequence[Tensor]) -> list[Value]:
        """The states as a body sees them, by its inputs for them."""
        states = list(inputs[: len(self._values)])
        if not self._moving:
            return [*states]
        node = SizedNode.within_body(self._node, body)
        counts: list[list[Tensor | None]] = [[None] * state.type.rank for state in states]
        for moving, held in zip(self._moving, inputs[len(states) :], strict=True):
            count = self._within(node, moving, held)
            for number, axis in moving.axes:
                counts[number][axis] = count
                self._before[number, axis] = node.table.scalar(count)
                if moving.rows and sum(map(bool, counts[number])) == 1:
                    body.context.caches[states[number]] = (axis, moving.rows)
        return [
            SizedValue(state, tuple(own)) if any(own) else state
            for state, own in zip(states, counts, strict=True)
        ]

    def _within(self, node: SizedNode, moving: _Moving, held: Tensor) -> Tensor:
        """A size in the body: one that grows by rows leaves room for them, or ends the run."""
        if not moving.rows:
            node.table.limit(held, moving.most)
            return held
        rows = node.int64(moving.rows)
        total = node.emit("Add", [held, rows])
        total = node.emit("CheckSize", [total], self._bound(moving))
        count = node.emit("Sub", [total, rows])
        node.table.limit(count, moving.most - moving.rows)
        return count

    def carried(self, body: OpenGraph, results: Sequence[Value | None]) -> list[Tensor]:
        """The next values, from what the body gives for the states; see `settle`."""
        parts = _as_sized(results)
        if not self._moving:
            return [part.padded for part in parts]
        node = SizedNode.within_body(self._node, body)
        padded = [part.padded for part in parts]
        for moving in self._moving:
            for number, axis in moving.axes:
                padded[number] = node.cropped(padded[number], axis, moving.most)
        return [*padded, *self._checked(node, parts)]

    def values(self, results: Sequence[Tensor]) -> list[Value]:
        """The values behind the loop, from its results."""
        states = list(results[: len(self._values)])
        counts: list[list[Tensor | None]] = [[None] * state.type.rank for state in states]
        for moving, count in zip(self._moving, results[len(states) :], strict=True):
            self._sized_node().table.limit(count, moving.most)
            for number, axis in moving.axes:
                counts[number][axis] = count
        return [
            SizedValue(state, tuple(own)) if any(own) else state
            for state, own in zip(states, counts, strict=True)
        ]

    # -- how large states become -----------------------------------------------------------------

    def settle(self, results: Sequence[Value | None], most: float, *, grows: bool) -> bool:
        """True if the states were imported as they have to be; else they are from now on.

        Args:
            results: What the body gives for the states.
            most: The most iterations.
            grows: Whether sizes may change.

        Raises:
            DataDependent: they may not; or a state changes in another way, or without a bound.
        """
        parts = _as_sized(results)
        for before, after in zip(self._values, parts, strict=True):
            self._require_kind(before, after)
        old = {place: moving for moving in self._moving for place in moving.axes}
        places = sorted({*old, *self._changing(parts)})
        if not places:
            return True
        if not grows:
            raise DataDependent("Loop: a value that is carried on has a size that data decides")
        self._trials += 1
        table = self._node.importer.context.sizes
        keys = {place: (self._first(*place), _size(table, parts, place)) for place in places}
        moving = [self._moved(parts, axes, old.get(axes[0]), most) for axes in _grouped(keys)]
        if moving == self._moving:
            return True
        if self._trials > _TRIALS:
            raise self._unbounded(moving[0])
        self._moving = moving
        return False

    def _changing(self, parts: Sequence[SizedValue]) -> list[tuple[int, int]]:
        """Axes of another size than at first, or of one that data decides."""
        return [
            (number, axis)
            for number, (before, after) in enumerate(zip(self._values, parts, strict=True))
            for axis, dim in enumerate(before.padded.type.shape)
            if after.counts[axis] is not None or after.padded.type.shape[axis] != dim
        ]

    def _moved(
        self,
        parts: Sequence[SizedValue],
        axes: tuple[tuple[int, int], ...],
        old: _Moving | None,
        most: float,
    ) -> _Moving:
        """Room for a size, by what it was planned for and what an iteration made of it."""
        table = self._node.importer.context.sizes
        names = [self._sized_node().result_name(number) for number, _ in axes]
        given = table.given_bound(*names)
        after = _size(table, parts, axes[0])
        top = min(table.range(after)[1], _room(parts, axes))
        if old is None:
            room = max(int(top), _room(self._values, axes))
            return _Moving(axes, room if given == inf else int(given))
        rows = table.sub(after, self._before[axes[0]]).known or 0
        room = old.most
        if top > room:
            added = min(table.compare(after, self._before[axes[0]])[1], top - room) * most
            if given == inf and not added < inf:
                raise self._unbounded(old)
            first = min(table.range(self._first(*axes[0]))[1], _room(self._values, axes))
            room = int(first + added) if given == inf else int(given)
        return _Moving(axes, room, max(rows, 0))

    def _require_kind(self, before: SizedValue, after: SizedValue) -> None:
        old, new = before.padded.type, after.padded.type
        if (old.dtype, old.rank) != (new.dtype, new.rank):
            raise DataDependent(f"Loop: a carried value changes from {old} to {new}")

    def _unbounded(self, moving: _Moving) -> DataDependent:
        node = self._sized_node()
        return node.refuse(
            f"nothing bounds the size of a value that it carries on (give the most that it can be: "
            f"--bound {node.result_name(moving.axes[0][0])}=N)"
        )

    # -- sizes -----------------------------------------------------------------------------------

    def _sized_node(self) -> SizedNode:
        return SizedNode(self._node, lambda _: ())

    def _first(self, number: int, axis: int) -> Size:
        return _size(self._node.importer.context.sizes, self._values, (number, axis))

    def _checked(self, node: SizedNode, parts: Sequence[SizedValue]) -> list[Tensor]:
        """The sizes, each of which has the room that is planned for it."""
        counts: list[Tensor] = []
        for moving in self._moving:
            number, axis = moving.axes[0]
            count = node.count(parts[number], axis)
            low, high = node.table.range(node.table.scalar(count))
            if low < 0 or high > moving.most:
                count = node.emit("CheckSize", [count], self._bound(moving))
            counts.append(count)
        return counts

    def _bound(self, moving: _Moving) -> AttributeMap:
        name = self._sized_node().result_name(moving.axes[0][0])
        return {"bound": moving.most, "tensor": name}


def _size(table: SizeTable, values: Sequence[SizedValue], place: tuple[int, int]) -> Size:
    value, axis = values[place[0]], place[1]
    count = value.counts[axis]
    return table.constant(value.padded.type.shape[axis]) if count is None else table.scalar(count)


def _room(values: Sequence[SizedValue], axes: Sequence[tuple[int, int]]) -> int:
    """The most that a size can be which all of these axes have."""
    return min(values[number].padded.type.shape[axis] for number, axis in axes)


def _grouped(keys: Mapping[tuple[int, int], object]) -> list[tuple[tuple[int, int], ...]]:
    """The places of equal keys."""
    groups: dict[object, list[tuple[int, int]]] = {}
    for place, key in keys.items():
        groups.setdefault(key, []).append(place)
    return [tuple(places) for places in groups.values()]


def _as_sized(values: Sequence[Value | None]) -> list[SizedValue]:
    if any(isinstance(value, Unknown) for value in values):
        raise AlreadyReported
    try:
        return [sized(value) for value in values]
    except ModelError:
        what = "sequences and optionals must be resolved at compile time"
        raise DataDependent(f"Loop: {what}") from None
