"""Operands as kernels want them that take nothing but contiguous memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from popc_runtime.format.dtypes import DType
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.now import run_now
from popc_runtime.native.record import MAX_RANK, Record, is_float32, tensor_words
from popc_runtime.native.views import View, empty, is_same_memory

__all__ = [
    "contiguous_copy",
    "copied",
    "fill_record",
    "fits_along",
    "has_elements",
    "has_few_dimensions",
    "is_indexed_float32",
    "is_plain",
    "is_whole_float32",
    "made_contiguous",
    "move_record",
    "packed",
    "sizes_along",
    "straightened",
    "tensors",
]

# An operand of so many elements, of which so many lie side by side, is turned before a map.
_TURNED, _SIDE = 1 << 14, 4
_HALVES = (DType.FLOAT16, DType.BFLOAT16)


def is_plain(binding: NativeBinding) -> bool:
    """True if the operands are of few dimensions, and numbers that the processor computes with."""
    halves = any(dtype in _HALVES for dtype in (*binding.input_dtypes, *binding.output_dtypes))
    return not halves and has_few_dimensions(binding)


def has_few_dimensions(binding: NativeBinding) -> bool:
    """True if a record has room for those of the operands."""
    views = [view for view in (*binding.inputs, *binding.outputs) if view is not None]
    return all(view.ndim < MAX_RANK for view in views)


def move_record(to: View, source: View) -> Record:
    """A copy between arrays of one shape and element size, which has elements.

    Raises:
        ValueError: If they have not.
    """
    if to.shape != source.shape or to.itemsize != source.itemsize:
        raise ValueError(f"{source.shape} cannot be copied to {to.shape}")
    return Record("Move", (*tensor_words(source), *tensor_words(to)), (to, source))


def fill_record(to: View, element: bytes) -> Record:
    """All elements of a contiguous view, which has some, become the bytes of one."""
    bits = int.from_bytes(element.ljust(8, b"\0"), "little")
    signed = bits - (1 << 64) if bits >> 63 else bits
    return Record("Fill", (*tensors(to), signed), (to,))


def contiguous_copy(view: View) -> View:
    """The elements of a constant, copied now."""
    copy = empty(view.shape, view.dtype)
    if copy.size:
        run_now(move_record(copy, view))
    return copy


def copied(binding: NativeBinding, index: int) -> tuple[Record, ...]:
    """Records that make the result a copy of an operand; none if it took over its memory."""
    source, out = binding.input(index), binding.output()
    nothing = out.size == 0 or is_same_memory(source, out)
    return () if nothing else (move_record(out, source),)


def packed(binding: NativeBinding, index: int) -> tuple[View, tuple[Record, ...]]:
    """A required operand, contiguous, and what runs before it is."""
    return made_contiguous(binding, binding.input(index))


def made_contiguous(binding: NativeBinding, array: View) -> tuple[View, tuple[Record, ...]]:
    """The elements of a view in order, and what runs before they are."""
    if array.is_contiguous or array.size == 0:
        return array, ()
    copy = binding.scratch.take(array.shape, array.dtype)
    return copy, (move_record(copy, array),)


def straightened(
    binding: NativeBinding, arrays: Sequence[View], out: View
) -> tuple[list[View], tuple[Record, ...]]:
    """``arrays`` in the order in which ``out`` lies, and what runs before they are.

    Only large ones of its shape whose elements lie side by side along another axis: a move turns
    them by squares, where a map would touch a line of the cache for each element.
    """
    order = sorted(range(out.ndim), key=lambda axis: -out.strides[axis])
    unknown = out.address < 0  # in a chain: of what no memory is for
    if unknown or out.size < _TURNED or not out.transpose(*order).is_contiguous:
        return list(arrays), ()
    places = tuple(order.index(axis) for axis in range(out.ndim))
    inner = next(axis for axis in reversed(order) if out.shape[axis] > 1)
    copies: dict[tuple[int, tuple[int, ...], DType], View] = {}
    straight: list[View] = []
    before: list[Record] = []
    for array in arrays:
        if array.shape != out.shape or not _is_turned(array, inner):
            straight.append(array)
            continue
        key = array.address, array.strides, array.dtype
        if key not in copies:
            shape = tuple(out.shape[axis] for axis in order)
            copies[key] = binding.scratch.take(shape, array.dtype).transpose(*places)
            before.append(move_record(copies[key], array))
        straight.append(copies[key])
    return straight, tuple(before)


def _is_turned(array: View, inner: int) -> bool:
    """True if elements lie apart along one axis, and some side by side along another."""
    if 0 in array.strides or abs(array.strides[inner]) <= array.itemsize:
        return False
    beside = [
        size
        for size, step in zip(array.shape, array.strides, strict=True)
        if step == array.itemsize
    ]
    return max(beside, default=0) >= _SIDE


def tensors(*arrays: View | None) -> tuple[int, ...]:
    """The words of operands, one after another."""
    return tuple(word for array in arrays for word in tensor_words(array))


def sizes_along(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """The number of elements before an axis, along it and behind it."""
    axis %= len(shape)
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def has_elements(binding: NativeBinding) -> bool:
    """True if that holds, and all operands and results have elements."""
    arrays = [view for view in (*binding.inputs, *binding.outputs) if view is not None]
    return is_plain(binding) and all(view.size > 0 for view in arrays)


def fits_along(binding: NativeBinding) -> bool:
    """True if operand 0 has lines of elements along an axis, and results are contiguous."""
    results = [result for result in binding.outputs if result is not None]
    plain = is_plain(binding) and all(result.is_contiguous for result in results)
    return plain and binding.input(0).size > 0 and binding.input(0).ndim > 0


def is_whole_float32(binding: NativeBinding) -> bool:
    """True if all operands and results are float32, contiguous and not empty."""
    arrays = (*binding.inputs, *binding.outputs)
    plain = all(view is None or (view.is_contiguous and view.size) for view in arrays)
    return plain and is_float32(binding)


def is_indexed_float32(binding: NativeBinding, indices: int) -> bool:
    """True if all but operand 0 is contiguous, and all is float32 but for operand ``indices``."""
    dtypes = list(binding.input_dtypes)
    number = dtypes.pop(indices)
    floats = all(dtype in (None, DType.FLOAT32) for dtype in (*dtypes, *binding.output_dtypes))
    first, *arrays = (*binding.inputs, *binding.outputs)
    contiguous = all(view is None or (view.is_contiguous and view.size) for view in arrays)
    return (
        floats
        and number in (DType.INT32, DType.INT64)
        and contiguous
        and first is not None
        and first.size > 0
    )
