"""Floats of eight bits, by tables: what each code stands for, and the code of each number.

A number is rounded once.  The upper half of a float32 says which code is nearest, if its last bit
is set wherever the lower half is not zero: no format has as many bits, so that a tie is not taken
for one, and what is none not for a tie.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array, DType
from popc_runtime.format.float8 import FLOATS8, SIGN, number_of

__all__ = ["codes_of", "encode_table", "from_float8", "to_float8", "value_table"]


_NAN: Final = {DType.FLOAT8E4M3FN: 0x7F, DType.FLOAT8E5M2: 0x7E}  # beside those of `SIGN`


@cache
def value_table(dtype: DType) -> Array:
    """float32 numbers by code."""
    return np.array([number_of(code, dtype) for code in range(256)], np.float32)


@cache
def encode_table(dtype: DType, *, saturates: bool) -> Array:
    """Codes by the upper half of a float32, of which the last bit stands for all below.

    ``saturates``: what is too large, infinity too, becomes the largest number; else infinity, or
    NaN where a format has none.
    """
    form = FLOATS8[dtype]
    values = (np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)).view(np.float32)
    with np.errstate(invalid="ignore"):  # of NaN
        sizes = np.abs(values.astype(np.float64))
    # One more than there are, for where rounding to it begins.
    numbers = np.array([form.magnitude(code) for code in range(form.largest + 2)])
    middles = (numbers[1:] + numbers[:-1]) / 2
    codes = np.searchsorted(middles, sizes)
    tied = (codes < len(middles)) & (sizes == middles[np.minimum(codes, len(middles) - 1)])
    codes += tied & (codes % 2 == 1)  # to even
    codes[codes > form.largest] = form.largest if saturates else form.overflow
    codes[np.isnan(sizes)] = _NAN.get(dtype, SIGN)
    signs = np.where(np.signbit(values), SIGN, 0)
    if form.unsigned:
        signs[codes == 0] = 0
    return np.asarray((codes | signs).astype(np.uint8))


def codes_of(values: Array, table: Array) -> Array:
    """The codes of float32 numbers by an `encode_table`."""
    bits = values.view(np.uint32)
    rest = (bits & np.uint32(0xFFFF)) != 0
    return np.asarray(table[(bits >> np.uint32(16)) | rest])


def to_float8(values: Array, dtype: DType, *, saturates: bool = True) -> Array:
    """The codes of numbers: rounded to nearest, ties to even; by way of float32, if wider."""
    with np.errstate(over="ignore"):
        narrow = np.asarray(values).astype(np.float32)
    return codes_of(narrow, encode_table(dtype, saturates=saturates))


def from_float8(codes: Array, dtype: DType) -> Array:
    """float32 numbers of codes; exact."""
    return np.asarray(value_table(dtype)[codes])
