"""Elements that move to places known beforehand: views made real, joins, turned sequences."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import copied, packed, tensors
from popc_runtime.native.moves import copy_operands, joined_rows, moves
from popc_runtime.native.places import are_numbers, is_movable
from popc_runtime.native.record import MAX_RANK, Encoder, Record
from popc_runtime.native.views import View, broadcast_to, merged_view

__all__ = ["ENCODERS"]


def _reshape(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    x, out = binding.input(0), binding.output()
    target, source = merged_view(out, x.shape), merged_view(x, out.shape)
    if target is not None:
        return moves([(target, x)])
    if source is not None:
        return moves([(out, source)])
    copy = binding.scratch.take(x.shape, x.dtype)
    return moves([(copy, x), (out, copy.reshape(out.shape))])


def _transpose(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X {perm}."""
    del numbers
    return moves([(binding.output(), binding.input(0).transpose(*binding.integers("perm")))])


def _expand(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    out = binding.output()
    return moves([(out, broadcast_to(binding.input(0), out.shape))])


def _tile(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X {repeats}: each dimension n becomes (repeats, n)."""
    del numbers
    x, out, repeats = binding.input(0), binding.output(), binding.integers("repeats")
    if not out.is_contiguous or out.size == 0:
        return None
    shape: list[int] = []
    strides: list[int] = []
    for repeat, dim, stride in zip(repeats, x.shape, x.strides, strict=True):
        shape += (repeat, dim)
        strides += (0, stride)
    axes = [axis for axis, dim in enumerate(shape) if dim != 1]
    wide = tuple(shape[axis] for axis in axes)
    source = x.of_memory(wide, tuple(strides[axis] for axis in axes))
    return moves([(out.reshape(wide), source)])


def _slice(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X {starts, steps}."""
    del numbers
    out = binding.output()
    places = zip(binding.integers("starts"), out.shape, binding.integers("steps"), strict=True)
    window = tuple(_window(start, size, step) for start, size, step in places)
    return moves([(out, binding.input(0)[window])])


def _window(start: int, size: int, step: int) -> slice:
    """``size`` elements from ``start`` on; a slice cannot name the place before index 0."""
    stop = start + size * step
    return slice(start, stop if stop >= 0 else None, step)


def _parts(whole: View, axis: int, sizes: list[int]) -> list[View]:
    """Consecutive parts of the given sizes along ``axis``."""
    front = (slice(None),) * axis
    ends = accumulate(sizes)
    return [whole[(*front, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]


def _concat(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Operands of any number {axis}."""
    del numbers
    axis, out = binding.integer("axis"), binding.output()
    operands = [binding.input(index) for index in range(len(binding.inputs))]
    sizes = [operand.shape[axis] for operand in operands]
    if (joined := joined_rows(out, operands, axis, sizes, joins=True)) is not None:
        return joined
    return moves(zip(_parts(out, axis, sizes), operands, strict=True))


def _split(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X to parts, some of which may not be wanted {axis, split}."""
    del numbers
    axis, x, sizes = binding.integer("axis"), binding.input(0), list(binding.integers("split"))
    if (parted := joined_rows(x, binding.outputs, axis, sizes, joins=False)) is not None:
        return parted
    pairs = zip(binding.outputs, _parts(x, axis, sizes), strict=True)
    return moves((out, part) for out, part in pairs if out is not None)


def _reverse(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, lengths {batch_axis}."""
    del numbers
    lengths, out = binding.input(1), binding.output()
    if not is_movable(out) or not are_numbers(lengths) or not out.is_contiguous:
        return None
    x, before = packed(binding, 0)
    words = (*tensors(x, lengths, out), binding.integer("batch_axis", 1))
    return Record("ReverseSequence", words, (x, lengths, out), before=before)


def _triangle(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, number of the diagonal? {upper}; what lies in another order is copied first."""
    del numbers
    x, out, diagonal = binding.input(0), binding.output(), binding.optional(1)
    if x.size == 0 or x.ndim >= MAX_RANK or not out.is_contiguous:
        return None
    if diagonal is not None and diagonal.dtype is not DType.INT64:
        return None
    source, before = (x, ()) if x.is_contiguous else (out, copied(binding, 0))
    words = (*tensors(source, out, diagonal), binding.integer("upper", 1))
    return Record("Triangle", words, (x, out), before=before)


ENCODERS: Final[dict[str, Encoder]] = {
    "Concat": _concat,
    "Copy": copy_operands,
    "Expand": _expand,
    "Reshape": _reshape,
    "ReverseSequence": _reverse,
    "Slice": _slice,
    "Split": _split,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _triangle,
}
