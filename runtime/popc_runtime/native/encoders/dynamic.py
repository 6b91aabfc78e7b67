"""Slices at offsets that are read on every run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import copied
from popc_runtime.native.forms import map_record
from popc_runtime.native.maps import map_for
from popc_runtime.native.places import fits_places, place_record
from popc_runtime.native.record import Encoder, Record
from popc_runtime.native.views import View, broadcast_to, filled

__all__ = ["ENCODERS"]


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
    fits = fits_places(out, binding.input(1)) and _lies_within(binding, x)
    if not fits or _corner(binding, x).shape != out.shape:
        return None
    return _read(binding, x, out)


def _changeable(binding: NativeBinding, update: View | None = None) -> bool:
    out = binding.output()
    if not _lies_within(binding, out) or binding.input(0).shape != out.shape:
        return False
    window = _corner(binding, out)
    same = update is None or update.shape == window.shape
    return same and fits_places(window, binding.input(1))


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


ENCODERS: Final[dict[str, Encoder]] = {
    "DynamicAdd": _add,
    "DynamicSlice": _slice,
    "DynamicUpdate": _update,
    "DynamicZero": _zero,
}
