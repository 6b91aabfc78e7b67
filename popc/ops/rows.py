"""Variables that lie one behind the other, so that joining them costs nothing.

A Concat needs no instruction if its operands are variables, or contiguous parts of some, that can
lie in memory in just this order.  A variable has one place: the first Concats that ask decide
about its neighbours, and those that ask for others later are copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple, Protocol

from popc.ir import Op, Tensor, TensorKind

__all__ = ["Rows", "is_concat_of_pixels", "is_row_of_operands", "step_of_concat"]


class _Place(Protocol):
    """The place of a tensor in the memory of ``root``."""

    @property
    def root(self) -> Tensor: ...
    @property
    def offset(self) -> int: ...
    @property
    def strides(self) -> tuple[int, ...] | None: ...


class _Run(NamedTuple):
    """Operands that follow each other in one row: from and to which byte of it."""

    row: list[Tensor]
    start: int
    end: int


def is_row_of_operands(op: Op) -> bool:
    """True if the operands of a Concat lie one behind the other in its result."""
    axis = op.attributes["axis"]
    assert isinstance(axis, int), f"{op!r}: axis={axis!r}"
    return prod(op.output.type.shape[:axis]) == 1


def is_concat_of_pixels(op: Op, strides: tuple[int, ...]) -> bool:
    """True if a Concat whose result has these strides joins channels that lie side by side."""
    type_ = op.output.type
    return type_.rank > 1 and op.attributes["axis"] == 1 and strides[1] == type_.dtype.itemsize


def step_of_concat(op: Op, operand: Tensor, strides: tuple[int, ...] | None) -> int:
    """Bytes from an operand of a Concat to the next, in a result with ``strides`` if it has any."""
    if strides is None:
        return operand.type.nbytes
    axis = op.attributes["axis"]
    assert isinstance(axis, int), f"{op!r}: axis={axis!r}"
    return operand.type.shape[axis] * strides[axis]


class Rows:
    """The rows of variables that have been found so far."""

    def __init__(self) -> None:
        self._row_of: dict[Tensor, list[Tensor]] = {}

    @property
    def all(self) -> list[tuple[Tensor, ...]]:
        """Rows of two variables and more."""
        rows = {id(row): row for row in self._row_of.values()}
        return [tuple(row) for row in rows.values() if len(row) > 1]

    def admit(self, op: Op, places: Mapping[Tensor, _Place]) -> bool:
        """True if the operands of ``op``, a Concat, lie in a row, or do so from now on."""
        runs: list[_Run] = []
        for tensor in op.present_inputs:
            place = places[tensor]
            if place.strides is not None or not _may_stand_in_row(place.root):
                return False
            if tensor.type.nbytes:
                _append(runs, self._locate(place, tensor.type.nbytes))
        if not runs or not _can_follow(runs):
            return False
        first = runs[0].row
        for run in runs[1:]:
            first.extend(run.row)
            self._row_of.update(dict.fromkeys(run.row, first))
        return True

    def _locate(self, place: _Place, nbytes: int) -> _Run:
        row = self._row_of.setdefault(place.root, [place.root])
        before = row[: row.index(place.root)]
        start = sum(variable.type.nbytes for variable in before) + place.offset
        return _Run(row, start, start + nbytes)


def _may_stand_in_row(tensor: Tensor) -> bool:
    return tensor.kind is TensorKind.VARIABLE and not tensor.off_chip


def _append(runs: list[_Run], run: _Run) -> None:
    if runs and runs[-1].row is run.row and runs[-1].end == run.start:
        run = runs.pop()._replace(end=run.end)
    runs.append(run)


def _can_follow(runs: Sequence[_Run]) -> bool:
    """True if each run ends where its row does, and the next begins where its own begins."""
    distinct = len({id(run.row) for run in runs}) == len(runs)
    ends = all(run.end == sum(tensor.type.nbytes for tensor in run.row) for run in runs[:-1])
    return distinct and ends and all(run.start == 0 for run in runs[1:])
