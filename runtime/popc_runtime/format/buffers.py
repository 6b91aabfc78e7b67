"""Memory with the alignment that vector instructions and direct views like."""

from __future__ import annotations

import numpy as np

from popc_runtime.errors import ResourceError
from popc_runtime.format.dtypes import Array

__all__ = ["aligned_empty"]


def aligned_empty(nbytes: int, alignment: int = 64) -> Array:
    """Uninitialised bytes (uint8) that start at a multiple of ``alignment``.

    Raises:
        ResourceError: the host has not enough memory.
    """
    try:
        buffer = np.empty(nbytes + alignment, np.uint8)
    except MemoryError as error:
        raise ResourceError(f"not enough memory for {nbytes:,} bytes") from error
    start = -buffer.ctypes.data % alignment
    return buffer[start : start + nbytes]
