"""Slices at offsets that are read on every run."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, MoveKernel
from popc_runtime.kernels.core.copying import copy_calls, is_same_memory, subarray

__all__ = ["KERNELS"]


class _Window:
    """The slice of an array whose place an operand tells."""

    def __init__(self, binding: Binding, array: Array) -> None:
        self._array = array
        self._offsets = binding.input(1).reshape(-1)
        self._axes = [axis % array.ndim for axis in binding.integers("axes")]
        self._sizes = binding.integers("sizes")

    def view(self) -> Array:
        """The slice as it is placed now.

        Raises:
            IndexError: it leaves the array.
        """
        windows = [slice(None)] * self._array.ndim
        places = zip(self._offsets.tolist(), self._axes, self._sizes, strict=True)
        for offset, axis, size in places:
            dim = self._array.shape[axis]
            if not 0 <= offset <= dim - size:
                raise IndexError(
                    f"a slice of {size} from {offset} on does not fit axis {axis} of size {dim}"
                )
            windows[axis] = slice(offset, offset + size)
        return subarray(self._array, windows)


def _slice(binding: Binding) -> Calls:
    out = binding.output()
    window = _Window(binding, binding.input(0))
    if binding.is_constant(1):
        return copy_calls(out, window.view())

    def call() -> None:
        np.copyto(out, window.view())

    return call


def _start(binding: Binding) -> tuple[Call, ...]:
    x, out = binding.input(0), binding.output()
    return () if is_same_memory(x, out) else copy_calls(out, x)


def _update(binding: Binding) -> Calls:
    window, update = _Window(binding, binding.output()), binding.input(2)
    if binding.is_constant(1):
        return (*_start(binding), *copy_calls(window.view(), update))

    def call() -> None:
        np.copyto(window.view(), update)

    return (*_start(binding), call)


def _add(binding: Binding) -> Calls:
    window, update = _Window(binding, binding.output()), binding.input(2)

    def call() -> None:
        place = window.view()
        np.add(place, update, out=place)

    return (*_start(binding), call)


def _zero(binding: Binding) -> Calls:
    window = _Window(binding, binding.output())
    if binding.is_constant(1):
        return (*_start(binding), partial(window.view().fill, 0))

    def call() -> None:
        window.view().fill(0)

    return (*_start(binding), call)


KERNELS: Final[dict[str, Kernel]] = {
    "DynamicAdd": _add,
    "DynamicSlice": MoveKernel(_slice),
    "DynamicUpdate": MoveKernel(_update),
    "DynamicZero": MoveKernel(_zero),
}
