"""The opposites of numbers.

With AVX2, numpy 2.4 takes wrong elements where those of ``np.negative`` lie 16 bytes apart, or 64
with eight bytes each, and results do not follow each other.  A product is right, and as exact.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

__all__ = ["negative"]

negative: Final = partial(np.multiply, -1)
"""Called as ``negative(x, out=out)``; not for types without a sign."""
