"""Operands computed from other operands: once, if those are constant, else in each run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["derived"]


def derived(
    binding: Binding,
    sources: Sequence[int],
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    fill: Callable[[Array], Iterable[Call]],
) -> tuple[Array, tuple[Call, ...]]:
    """An array that ``fill`` computes from the inputs ``sources``, and the calls that do so.

    ``fill`` is given the array, uninitialised, and returns calls.  If all sources are constant
    (or absent) they are made here, and none are left for the runs.
    """
    if all(binding.optional(index) is None or binding.is_constant(index) for index in sources):
        array = np.empty(shape, dtype)
        for call in fill(array):
            call()
        return array, ()
    array = binding.scratch.take(shape, dtype)
    return array, tuple(fill(array))
