"""Shares of the work of an instruction, for `popc_runtime.kernels.core.parallel`.

The estimates are rough on purpose: they only decide whether the work is worth a second thread.
They depend on shapes alone, so that results do not depend on the machine.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

__all__ = ["even_slices", "share_count"]

_MULTIPLICATIONS: Final = 6e10  # per second and thread, in a matrix product
_ELEMENTS: Final = 3e9  # per second and thread, read or written by a ufunc or a copy
_SHORTEST: Final = 150e-6  # seconds: a shorter share is not worth waking a thread
_MOST: Final = 4  # more shares only add calls


def share_count(*, multiplications: float = 0, elements: float = 0, most: int = _MOST) -> int:
    """Into how many shares to cut work: 1 if it is short, ``most`` if that many are possible."""
    seconds = multiplications / _MULTIPLICATIONS + elements / _ELEMENTS
    return max(1, min(int(seconds / _SHORTEST), most, _MOST))


def even_slices(length: int, count: int) -> list[slice]:
    """``range(length)`` in ``count`` parts of nearly equal length, without empty ones."""
    cuts = [length * k // count for k in range(count + 1)]
    return [slice(a, b) for a, b in pairwise(cuts) if a < b]
