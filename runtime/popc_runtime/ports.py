"""Ports whose other end can be switched between runs: to the arrays of `run` or to a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from popc_runtime.errors import StreamUnderrunError
from popc_runtime.format import Array

__all__ = ["SwitchedInput", "SwitchedOutput", "discard"]


class SwitchedInput:
    """Feeds the device from ``samples``, an iterator over checked arrays."""

    __slots__ = ("samples",)

    def __init__(self) -> None:
        self.samples: Iterator[Array] = iter(())

    def load(self, target: Array) -> None:
        """Copy the next sample to device memory."""
        try:
            sample = next(self.samples)
        except StopIteration:
            raise StreamUnderrunError("an input stream is not connected") from None
        np.copyto(target, sample)


class SwitchedOutput:
    """Hands copies of device memory to ``take``."""

    __slots__ = ("take",)

    def __init__(self) -> None:
        self.take: Callable[[Array], object] = discard

    def store(self, value: Array) -> None:
        """Copy a sample from device memory and hand it on."""
        self.take(value.copy())


def discard(value: Array) -> None:
    """What happens to outputs that nothing is connected to."""
    del value
