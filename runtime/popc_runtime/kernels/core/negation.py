"""The opposites of numbers.

With AVX2, numpy 2.4 takes wrong elements where those of ``np.negative`` lie 16 bytes apart, or 64
with eight bytes each, and results do not follow each other.  A product is right, and as exact.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

__all__ = ["negative"]


@cache
def _minus_one(dtype: np.dtype[Any]) -> np.generic[Any]:
    """The largest number in a type without a sign, whose products are opposites modulo 2^bits."""
    minus_one: np.generic[Any] = np.int8(-1).astype(dtype)
    return minus_one


def negative(x: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
    """Writes ``-x``, modulo 2^bits for integers, to an ``out`` of the same shape and dtype.

    ``out`` may be ``x``.
    """
    np.multiply(x, _minus_one(x.dtype), out=out)
