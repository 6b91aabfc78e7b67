"""Other shapes of the same memory."""

from __future__ import annotations

import numpy as np

from popc_runtime.format.dtypes import Array

__all__ = ["merged_view"]


def merged_view(array: Array, shape: tuple[int, ...]) -> Array | None:
    """``array`` reshaped to ``shape`` if that needs no copy."""
    view = array.reshape(shape)
    return view if np.may_share_memory(view, array) else None
