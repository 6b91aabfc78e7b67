"""Where operands may lie: every way in which a program may lay a tensor out in memory.

What lies around an operand is filled with a pattern, so that a write beside it is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from popc_runtime.format import Array

__all__ = ["LAYOUTS", "Place", "place"]

_AROUND: Final = 0xA5
_ALIGNMENT: Final = 64
_MARGIN: Final = 256  # bytes in front and behind

# Of a shape: sizes of the memory around it, then the part of it, with axes in their order.
_Window: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True)
class Place:
    """Memory for one operand.

    Attributes:
        memory: All bytes.
        view: The operand in them.
        window: The same part of other memory of that size.
    """

    memory: Array
    view: Array
    window: _Window

    def spoil(self) -> None:
        """Fill all memory with the pattern."""
        self.memory.fill(_AROUND)

    def around(self) -> bytes:
        """Whatever lies around the operand."""
        copy = self.memory.copy()
        self.window(copy)[...] = np.zeros((), self.view.dtype)
        return copy.tobytes()


def _sizes_plain(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape


def _sizes_wide(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*(size + 1 for size in shape[:-1]), *(2 * size + 1 for size in shape[-1:]))


def _spread(array: Array) -> Array:
    """A window of a larger tensor, two elements apart."""
    part: Array = array[(*(slice(1, None) for _ in array.shape[:-1]), slice(1, None, 2))]
    return part


def _reversed_sizes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[::-1]


def _channels_last_sizes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if len(shape) < 3 else (shape[0], *shape[2:], shape[1])


def _channels_last(array: Array) -> Array:
    return array if array.ndim < 3 else np.moveaxis(array, -1, 1)


def _backwards(array: Array) -> Array:
    part: Array = array[(slice(None, None, -1),) * array.ndim]
    return part


def _sizes_of_pixels(shape: tuple[int, ...]) -> tuple[int, ...]:
    *outer, last = _channels_last_sizes(shape)
    return (*outer, last + 5)


def _part_of_pixels(array: Array) -> Array:
    """Some channels of images that lie pixel by pixel; of others a part of each row."""
    return _channels_last(array[..., 3:-2])


def _sizes_of_planes(shape: tuple[int, ...]) -> tuple[int, ...]:
    axis = min(1, len(shape) - 1)
    return (*shape[:axis], shape[axis] + 3, *shape[axis + 1 :])


def _part_of_planes(array: Array) -> Array:
    part: Array = array[:, 1:-2] if array.ndim > 1 else array[1:-2]
    return part


@dataclass(frozen=True)
class _Layout:
    """``sizes``: of the memory, by the shape; ``part``: the operand in it; ``off``: elements."""

    sizes: Callable[[tuple[int, ...]], tuple[int, ...]] = _sizes_plain
    part: Callable[[Array], Array] = np.asarray
    off: int = 0


LAYOUTS: Final[dict[str, _Layout]] = {
    "contiguous": _Layout(),
    "unaligned": _Layout(off=1),
    "reversed axes": _Layout(_reversed_sizes, np.transpose),
    "channels last": _Layout(_channels_last_sizes, _channels_last, off=3),
    "part of pixels": _Layout(_sizes_of_pixels, _part_of_pixels),
    "part of planes": _Layout(_sizes_of_planes, _part_of_planes),
    "spread": _Layout(_sizes_wide, _spread),
    "backwards": _Layout(part=_backwards, off=1),
}


def place(shape: tuple[int, ...], dtype: Any, layout: str) -> Place:
    """Memory for a tensor of ``shape``, filled with the pattern."""
    chosen, item = LAYOUTS[layout if shape else "contiguous"], np.dtype(dtype).itemsize
    sizes = chosen.sizes(shape)
    nbytes = int(np.prod(sizes, dtype=np.int64)) * item
    memory = np.full(nbytes + 2 * _MARGIN + _ALIGNMENT, _AROUND, np.uint8)
    address = memory.__array_interface__["data"][0]
    begin = -(address + _MARGIN) % _ALIGNMENT + _MARGIN + chosen.off * item

    def window(other: Array) -> Array:
        return chosen.part(other[begin : begin + nbytes].view(dtype).reshape(sizes))

    return Place(memory, window(memory), window)
