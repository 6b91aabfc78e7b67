"""Stretches of memory, and whether others meet them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from popc_runtime.format import Slot

__all__ = ["Extents", "extent_of"]


def extent_of(slot: Slot) -> tuple[int, int]:
    """First byte and end of the bytes that a slot can touch."""
    strides = slot.strides
    if strides is None:
        size = slot.dtype.itemsize
        for dim in slot.shape:
            size *= dim
        return slot.offset, slot.offset + size
    spans = [(dim - 1) * step for dim, step in zip(slot.shape, strides, strict=True) if dim > 0]
    low = slot.offset + sum(span for span in spans if span < 0)
    high = slot.offset + sum(span for span in spans if span > 0) + slot.dtype.itemsize
    return low, high


class Extents:
    """Stretches of bytes, given by first byte and end; those that meet are kept as one."""

    def __init__(self, stretches: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(stretches):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def meet(self, low: int, high: int) -> bool:
        """True if any byte from ``low`` on and before ``high`` is in one of them."""
        last = bisect_left(self._starts, high) - 1
        return last >= 0 and low < self._ends[last]
