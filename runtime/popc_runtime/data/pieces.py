"""Parts of inputs along an axis, and results put together from parts: arrays, or plain memory."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod

from popc_runtime.data.tensors import ResultTensor
from popc_runtime.format import DType, TensorSpec
from popc_runtime.ground.hints import Any, Protocol

__all__ = ["ARRAYS", "BUFFERS", "Pieces", "element_bytes", "shape_of"]


class Pieces(Protocol):
    """A way to cut and to join."""

    def cut(
        self, value: Any, axis: int, start: int, stop: int, size: int, fill: bytes = b""
    ) -> Any:
        """Elements ``start`` to ``stop`` of an axis, and others until there are ``size``.

        They are ``fill``, an element as it is stored, or the last one repeated: a repeated sample
        is one that the model is meant for, and makes no NaN that others do not.
        """

    def join(self, parts: Sequence[Any], axis: int) -> Any:
        """Parts behind one another along an axis."""

    def has_only(self, value: Any, axis: int, element: bytes) -> bool:
        """True if there is a row along an axis in which all elements are ``element``."""


class _Arrays:
    """Arrays of numpy."""

    def cut(
        self, value: Any, axis: int, start: int, stop: int, size: int, fill: bytes = b""
    ) -> Any:
        import numpy as np

        array = np.asarray(value)
        if fill:
            found = np.empty(_with(array.shape, axis, size), array.dtype)
            found[...] = np.frombuffer(fill, array.dtype)
            kept = (slice(None),) * axis
            found[(*kept, slice(0, stop - start))] = array[(*kept, slice(start, stop))]
            return found
        if (start, stop, size) == (0, array.shape[axis], array.shape[axis]):
            return array
        rows = [*range(start, stop), *[stop - 1] * (size - (stop - start))]
        return array.take(rows, axis)

    def join(self, parts: Sequence[Any], axis: int) -> Any:
        import numpy as np

        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis)

    def has_only(self, value: Any, axis: int, element: bytes) -> bool:
        import numpy as np

        array = np.asarray(value)
        return bool((array == np.frombuffer(element, array.dtype)).all(axis).any())


class _Buffers:
    """Plain memory, without numpy."""

    def cut(
        self, value: Any, axis: int, start: int, stop: int, size: int, fill: bytes = b""
    ) -> Any:
        if isinstance(value, ResultTensor):
            spec = TensorSpec(value.name, value.dtype, _with(value.shape, axis, size))
            data = _cut(value.data, value.shape, axis, start, stop, size, fill)
            return ResultTensor(spec, data)
        memory = memoryview(value)
        shape = memory.shape or ()
        data = _cut(memory.cast("B"), shape, axis, start, stop, size, fill)
        whole: Any = memoryview(data)
        return whole.cast(memory.format.lstrip("@=<"), _with(shape, axis, size))

    def join(self, parts: Sequence[Any], axis: int) -> Any:
        first = parts[0]
        if len(parts) == 1:
            return first
        size = sum(part.shape[axis] for part in parts)
        rows = prod(first.shape[:axis])
        data = bytearray()
        for row in range(rows):
            for part in parts:
                step = part.nbytes // rows
                data += part.data[row * step : (row + 1) * step]
        return ResultTensor(
            TensorSpec(first.name, first.dtype, _with(first.shape, axis, size)), data
        )

    def has_only(self, value: Any, axis: int, element: bytes) -> bool:
        shape = value.shape
        data = value.data if isinstance(value, ResultTensor) else memoryview(value).cast("B")
        rows = prod(shape[:axis])
        size = data.nbytes // max(rows, 1)
        whole = element * (size // len(element))
        return any(data[row * size : (row + 1) * size] == whole for row in range(rows))


def _cut(
    data: memoryview,
    shape: tuple[int, ...],
    axis: int,
    start: int,
    stop: int,
    size: int,
    fill: bytes,
) -> bytearray:
    rows = prod(shape[:axis])
    row = data.nbytes // max(rows, 1)
    step = row // max(shape[axis], 1)
    found = bytearray()
    for number in range(rows):
        own = data[number * row : (number + 1) * row]
        found += own[start * step : stop * step]
        last = bytes(own[(stop - 1) * step : stop * step])
        found += (fill * (step // len(fill)) if fill else last) * (size - (stop - start))
    return found


def _with(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def element_bytes(dtype: DType, number: float) -> bytes | None:
    """An element as it is stored; ``None`` if the type does not hold the number."""
    try:
        if dtype is DType.BFLOAT16:
            return struct.pack("<f", number)[2:]
        if dtype.is_float:
            return struct.pack(f"<{dtype.code}", number)
        return struct.pack(f"<{dtype.code}", int(number)) if number == int(number) else None
    except (struct.error, OverflowError):
        return None


def shape_of(value: Any) -> tuple[int, ...] | None:
    """The shape of something that may be an input; ``None`` of plain bytes."""
    shape = getattr(value, "shape", None)
    if isinstance(value, memoryview) and value.format == "B" and value.ndim == 1:
        return None
    if shape is not None:
        return tuple(int(size) for size in shape)
    if isinstance(value, (bytes, bytearray)):
        return None
    try:
        return tuple(memoryview(value).shape or ())  # array.array and the like
    except TypeError:
        import numpy as np

        found: tuple[int, ...] = np.shape(value)
        return found


ARRAYS = _Arrays()
BUFFERS = _Buffers()
