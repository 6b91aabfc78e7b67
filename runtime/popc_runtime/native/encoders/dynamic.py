"""Copies from and to places that are read on every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import copied, tensors
from popc_runtime.native.encoders.elementwise import map_for
from popc_runtime.native.forms import map_record
from popc_runtime.native.record import MAX_RANK, Encoder, Record
from popc_runtime.native.views import View, broadcast_to, filled

__all__ = ["ENCODERS", "one_row"]

_NUMBERS: Final = (DType.INT32, DType.INT64, DType.UINT32)
# What a number is that is none of the places: known to csrc/kernels/movement/moves.c.
_NO_PLACE, _MODULO, _FROM_THE_END = range(3)


def place_record(
    source: View,
    target: View,
    numbers: View,
    places: tuple[tuple[int, int], ...],
    *,
    moves_target: bool,
    wrapping: int = _NO_PLACE,
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
    kept = (source, target, numbers)
    return Record("MoveAt", (*words, *steps), kept, before=before, explain=explain)


def _fits(moved: View, numbers: View) -> bool:
    known = numbers.dtype in _NUMBERS and numbers.is_contiguous
    return known and moved.size > 0 and moved.ndim < MAX_RANK


def _row(array: View) -> View:
    """The first row, as a view also if it is a single element."""
    return array[0, ...]


# -- slices at offsets -----------------------------------------------------------------------------


def _corner(binding: NativeBinding, array: View) -> View:
    """The slice of ``array`` whose offsets are 0."""
    window = [slice(None)] * array.ndim
    for axis, size in zip(binding.integers("axes"), binding.integers("sizes"), strict=True):
        window[axis] = slice(0, size)
    return array[tuple(window)]


def _lies_within(binding: NativeBinding, array: View) -> bool:
    """True if slices have an axis of ``array`` for each size, none of which is longer than that."""
    axes, sizes = binding.integers("axes"), binding.integers("sizes")
    distinct = len({axis % array.ndim for axis in axes}) == len(axes) if array.ndim else not axes
    pairs = zip(axes, sizes, strict=False)
    return (
        distinct
        and len(axes) == len(sizes)
        and all(0 <= size <= array.shape[axis] for axis, size in pairs)
    )


def _places(binding: NativeBinding, array: View) -> tuple[tuple[int, int], ...]:
    return tuple(
        (array.strides[axis], array.shape[axis] - size + 1)
        for axis, size in zip(binding.integers("axes"), binding.integers("sizes"), strict=True)
    )


def _leaves(binding: NativeBinding, array: View) -> str:
    """The message about an offset that lets a slice leave ``array``."""
    offsets = binding.input(1).tolist()
    windows = zip(offsets, binding.integers("axes"), binding.integers("sizes"), strict=True)
    for offset, axis, size in windows:
        dim = array.shape[axis]
        if not 0 <= offset <= dim - size:
            at = axis % array.ndim
            return f"a slice of {size} from {offset} on does not fit axis {at} of size {dim}"
    return ""


def _read(binding: NativeBinding, source: View, target: View) -> Record:
    return place_record(
        _corner(binding, source),
        target,
        binding.input(1),
        _places(binding, source),
        moves_target=False,
        explain=partial(_leaves, binding, source),
    )


def _write(binding: NativeBinding, source: View, *before: Record) -> Record:
    """The record that writes a slice, after the result has begun as a copy of operand 0."""
    out = binding.output()
    return place_record(
        source,
        _corner(binding, out),
        binding.input(1),
        _places(binding, out),
        moves_target=True,
        before=(*copied(binding, 0), *before),
        explain=partial(_leaves, binding, out),
    )


def _slice(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, offsets {axes, sizes}."""
    del numbers
    x, out = binding.input(0), binding.output()
    fits = _fits(out, binding.input(1)) and _lies_within(binding, x)
    if not fits or _corner(binding, x).shape != out.shape:
        return None
    return _read(binding, x, out)


def _changeable(binding: NativeBinding, update: View | None = None) -> bool:
    out = binding.output()
    if not _lies_within(binding, out) or binding.input(0).shape != out.shape:
        return False
    window = _corner(binding, out)
    same = update is None or update.shape == window.shape
    return same and _fits(window, binding.input(1))


def _update(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, offsets, slice {axes, sizes}."""
    del numbers
    if not _changeable(binding, binding.input(2)):
        return None
    return _write(binding, binding.input(2))


def _zero(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, offsets {axes, sizes}."""
    del numbers
    if not _changeable(binding):
        return None
    out = binding.output()
    zero = broadcast_to(filled((), out.dtype, 0), _corner(binding, out).shape)
    return _write(binding, zero)


def _add(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, offsets, slice {axes, sizes}: read, added to, written back."""
    dtype = binding.output_dtypes[0]
    kernel = map_for("Add", dtype, numbers)
    if kernel is None or not _changeable(binding, binding.input(2)):
        return None
    out, update = binding.output(), binding.input(2)
    total = binding.scratch.take(update.shape, out.dtype)
    read = _read(binding, out, total)
    add = map_record(kernel, total, [total, update], (), (dtype, dtype, dtype))
    return _write(binding, total, read, add)


# -- rows by their number --------------------------------------------------------------------------


def _row_record(
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
    if not _fits(other, binding.input(number)) or rows.shape[1:] != other.shape:
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
    if not _fits(out, number) or not out.is_contiguous or x.shape[axis] == 0:
        return None
    return place_record(
        x[(*(slice(None),) * axis, 0, ...)],
        out.reshape(shape),
        number,
        ((x.strides[axis], x.shape[axis]),),
        moves_target=False,
        wrapping=_FROM_THE_END,
    )


def _store_row(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Value, number of the row of the result."""
    del numbers
    rows, value = binding.output(), binding.input(0)
    return _row_record(binding, rows, value, 1, stores=True, wrapping=_FROM_THE_END)


def _stash(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Rows, value, number of the row, which goes round."""
    del numbers
    rows, value = binding.output(), binding.input(1)
    if value.size == 0:
        return None
    before = copied(binding, 0)
    return _row_record(binding, rows, value, 2, stores=True, wrapping=_MODULO, before=before)


def _restore(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Rows, number of the row, which goes round."""
    del numbers
    return _row_record(
        binding, binding.input(0), binding.output(), 1, stores=False, wrapping=_MODULO
    )


ENCODERS: Final[dict[str, Encoder]] = {
    "DynamicAdd": _add,
    "DynamicSlice": _slice,
    "DynamicUpdate": _update,
    "DynamicZero": _zero,
    "Restore": _restore,
    "StackStore": _store_row,
    "Stash": _stash,
}
