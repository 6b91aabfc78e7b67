"""Copies from and to places that numbers name when a program runs."""

from __future__ import annotations

from collections.abc import Callable

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import tensors
from popc_runtime.native.record import MAX_RANK, Record
from popc_runtime.native.views import View

__all__ = [
    "FROM_THE_END",
    "MODULO",
    "are_indices",
    "are_numbers",
    "fits_places",
    "has_places",
    "is_movable",
    "one_row",
    "place_record",
    "row_record",
]

_NUMBERS: Final = (DType.INT32, DType.INT64, DType.UINT32)
# What a number is that is none of the places: known to csrc/kernels/movement/moves.c.
NO_PLACE, MODULO, FROM_THE_END = range(3)


def place_record(
    source: View,
    target: View,
    numbers: View,
    places: tuple[tuple[int, int], ...],
    *,
    moves_target: bool,
    wrapping: int = NO_PLACE,
    before: tuple[Record, ...] = (),
    explain: Callable[[], str] | None = None,
) -> Record:
    """A copy of ``source`` to ``target``, one of which is moved by ``numbers``.

    Args:
        source, target: Views of one shape, where they lie if the numbers are 0.
        numbers: Integers, contiguous.
        places: For each number the bytes from place to place, and how many places there are.
        moves_target: Whether ``target`` is the one that is moved.
        wrapping: What a number is that is none of the places.
        before: What runs before.
        explain: Tells more of a number that is outside.

    Raises:
        ValueError: If the shapes or element sizes of the views differ.
    """
    if source.shape != target.shape or source.itemsize != target.itemsize:
        raise ValueError(f"{source.shape} cannot be copied to {target.shape}")
    words = (*tensors(source, target, numbers), int(moves_target), wrapping, len(places))
    steps = tuple(word for place in places for word in place)
    views = (source, target, numbers)
    return Record("MoveAt", (*words, *steps), views, before=before, explain=explain)


def fits_places(moved: View, numbers: View) -> bool:
    """True if ``moved`` has elements, and kernels read such ``numbers``."""
    known = numbers.dtype in _NUMBERS and numbers.is_contiguous
    return known and moved.size > 0 and moved.ndim < MAX_RANK


def _row(array: View) -> View:
    """The first row, as a view also if it is a single element."""
    return array[0, ...]


def row_record(
    binding: NativeBinding,
    rows: View,
    other: View,
    number: int,
    *,
    stores: bool,
    wrapping: int,
    before: tuple[Record, ...] = (),
) -> Record | None:
    """A row of ``rows`` and ``other``: from one to the other; operand ``number`` says which row."""
    if not fits_places(other, binding.input(number)) or rows.shape[1:] != other.shape:
        return None
    if rows.shape[0] == 0:  # no number is right
        return None
    row, places = _row(rows), ((rows.strides[0], rows.shape[0]),)
    source, target = (other, row) if stores else (row, other)
    return place_record(
        source,
        target,
        binding.input(number),
        places,
        moves_target=stores,
        wrapping=wrapping,
        before=before,
    )


def one_row(binding: NativeBinding, axis: int) -> Record | None:
    """X, number of the slice along an axis of X, which may be strided."""
    x, number, out = binding.input(0), binding.input(1), binding.output()
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    if not fits_places(out, number) or not out.is_contiguous or x.shape[axis] == 0:
        return None
    return place_record(
        x[(*(slice(None),) * axis, 0, ...)],
        out.reshape(shape),
        number,
        ((x.strides[axis], x.shape[axis]),),
        moves_target=False,
        wrapping=FROM_THE_END,
    )


def are_indices(binding: NativeBinding, index: int) -> bool:
    """True if operand ``index`` holds integers of a type that indices have."""
    return binding.input(index).dtype in (DType.INT32, DType.INT64)


def has_places(table: View, indices: View, values: View) -> bool:
    """True if all have elements, and the table and the indices dimensions."""
    dimensions = table.ndim > 0 and indices.ndim > 0
    return dimensions and all(view.size > 0 for view in (table, indices, values))


def is_movable(*arrays: View) -> bool:
    """True if arrays have elements, and fewer dimensions than a record has room for."""
    return all(view.size > 0 and view.ndim < MAX_RANK for view in arrays)


def are_numbers(*arrays: View | None) -> bool:
    """True if arrays that are given are integers that kernels read, and contiguous."""
    return all(
        view is None or (view.dtype in (DType.INT32, DType.INT64) and view.is_contiguous)
        for view in arrays
    )
