"""Ports whose other end can be switched between runs: to the arrays of `run` or to a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from popc_runtime.errors import StreamUnderrunError
from popc_runtime.ground.hints import Any

__all__ = ["SwitchedInput", "SwitchedOutput", "discard"]


class SwitchedInput:
    """Feeds the device from ``samples``, an iterator over checked arrays or other buffers."""

    __slots__ = ("samples",)

    def __init__(self) -> None:
        self.samples: Iterator[Any] = iter(())

    def load(self, target: memoryview) -> None:
        """Copy the next sample to device memory."""
        try:
            sample = next(self.samples)
        except StopIteration:
            raise StreamUnderrunError("an input stream is not connected") from None
        given = memoryview(sample)
        if given.nbytes != target.nbytes:
            raise ValueError(
                f"expected a sample of {target.nbytes:,} bytes, got {given.nbytes:,} bytes"
            )
        target[:] = given.cast("B") if given.c_contiguous and given.nbytes else given.tobytes()


class SwitchedOutput:
    """Hands device memory to ``take``, which copies it."""

    __slots__ = ("take",)

    def __init__(self) -> None:
        self.take: Callable[[memoryview], object] = discard

    def store(self, value: memoryview) -> None:
        """Hand a sample on."""
        self.take(value)


def discard(value: memoryview) -> None:
    """Take the outputs that nothing is connected to."""
    del value
