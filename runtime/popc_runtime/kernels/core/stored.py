"""Numbers as elements are stored, and back: bfloat16 is a bit pattern to numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from popc_runtime.format.dtypes import Array, DType

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["as_stored", "floats_of", "from_bfloat16", "to_bfloat16"]


def from_bfloat16(bits: Array) -> Array:
    """float32 array of the values whose bfloat16 bit patterns are ``bits`` (uint16); exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def floats_of(array: Array, dtype: DType) -> Array:
    """The values of an array of ``dtype``: bfloat16 as float32, others as they are."""
    return from_bfloat16(array) if dtype is DType.BFLOAT16 else array


def to_bfloat16(values: Array) -> Array:
    """bfloat16 bit patterns (uint16) of ``values`` (float32), rounded to nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet_nan = (bits >> np.uint32(16)) | np.uint32(0x0040)
    return np.where(np.isnan(values), quiet_nan, rounded).astype(np.uint16)


def as_stored(values: npt.ArrayLike, dtype: DType) -> Array:
    """A copy of numbers, as elements of ``dtype`` are stored: bfloat16 as bit patterns."""
    array = np.asarray(values)
    if dtype is DType.BFLOAT16:
        return to_bfloat16(array.astype(np.float32)).reshape(array.shape)
    return array.astype(dtype.storage)
