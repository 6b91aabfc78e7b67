"""Conversions between float16 and float32 in vector code.

numpy converts element by element, and how long that takes depends on the value: zeros among other
numbers cost three times as much as numbers alone, subnormal results thirty times.  Activations are
full of both.  Here the conversions are integer and float32 ufuncs over a block, in the same time
for all values but subnormal float16 operands; only infinities and nans are left to numpy.

Both ways rest on scaling by powers of two, which is exact: the exponents of the two formats differ
by 112.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Call, Scratch

__all__ = ["HalfConverter", "is_half_conversion"]

_FEW: Final = 1024  # elements that numpy converts in less time than the calls here take
_REBIAS: Final = np.asarray(2.0**112, np.float32)
_SIGN_AND_VALUE: Final = np.asarray(-0x70002000, np.int32)  # 0x8fffe000
_HALF_EXPONENT: Final = np.asarray(0x7C00, np.uint16)

# Narrowing adds 4 |x| to the power of two that is 15 above the one of x: the last bit of the sum is
# worth the last bit of a float16, so the sum ends in the fraction of x, leading 1 included, rounded
# to nearest even.  Below 2^-14, the least normal float16, the power stays that of 2^-14, for so are
# subnormal numbers spaced.  4 |x| goes through 2^112 |x|, where numbers too large for float16
# become infinite.
_BACK: Final = np.asarray(2.0**-110, np.float32)
_EXPONENT: Final = np.asarray(0x7F800000, np.uint32)
_LEAST_EXPONENT: Final = np.asarray(0x38800000, np.uint32)
_RAISE: Final = np.asarray(0x07800000, np.uint32)  # 15 more in the exponent
_WIDE_FRACTION: Final = np.asarray(0x0FFF, np.uint32)
_WIDE_EXPONENT: Final = np.asarray(0x7C00, np.uint32)
_WIDE_SIGN: Final = np.asarray(0x8000, np.uint32)
_13: Final = np.asarray(13, np.uint32)
_16: Final = np.asarray(16, np.uint32)


def is_half_conversion(target: Array, source: Array) -> bool:
    """True if `HalfConverter` can fill ``target`` from ``source``."""
    return {target.dtype, source.dtype} == {np.dtype(np.float16), np.dtype(np.float32)}


class HalfConverter:
    """Makes the calls that convert blocks of up to ``capacity`` elements; holds the temporaries."""

    def __init__(self, scratch: Scratch, capacity: int) -> None:
        self._spare = scratch.take((capacity,), np.float32)
        self._bits = scratch.take((capacity,), np.uint32)
        self._mask = scratch.take((capacity,), np.bool_)

    def calls(self, target: Array, source: Array) -> Iterator[Call]:
        """Fill ``target`` from ``source`` (the same shape); other types are left to numpy."""
        if target.size < _FEW or not is_half_conversion(target, source):
            yield partial(np.copyto, target, source, casting="unsafe")
            return
        mask = self._mask[: target.size].reshape(target.shape)
        if target.dtype == np.float32:
            yield from self._widen(target, source, mask)
        else:
            yield from self._narrow(target, source, mask)
        yield partial(np.copyto, target, source, casting="same_kind", where=mask)

    def _widen(self, target: Array, source: Array, mask: Array) -> Iterator[Call]:
        """Puts sign, exponent and fraction in place, then corrects the exponent.

        ``mask`` is set where that does not do: at infinities and nans.
        """
        wide = target.view(np.int32)
        yield partial(np.copyto, wide, source.view(np.int16))
        yield partial(np.left_shift, wide, np.asarray(13, np.int32), out=wide)
        yield partial(np.bitwise_and, wide, _SIGN_AND_VALUE, out=wide)
        yield partial(np.multiply, target, _REBIAS, out=target)
        bits = self._bits.view(np.uint16)[: target.size].reshape(target.shape)
        yield partial(np.bitwise_and, source.view(np.uint16), _HALF_EXPONENT, out=bits)
        yield partial(np.equal, bits, _HALF_EXPONENT, out=mask)

    def _narrow(self, target: Array, source: Array, mask: Array) -> Iterator[Call]:
        """Rounds by a float addition, then picks exponent, fraction and sign from the sum's bits.

        ``mask`` is set where that does not do: at nans.
        """
        size = self._spare[: target.size].reshape(target.shape)
        bits = self._bits[: target.size].reshape(target.shape)
        wide = size.view(np.uint32)
        given = source.view(np.uint32)
        yield partial(np.absolute, source, out=size)
        yield partial(np.multiply, size, _REBIAS, out=size)
        yield partial(np.multiply, size, _BACK, out=size)
        yield partial(np.bitwise_and, given, _EXPONENT, out=bits)
        yield partial(np.maximum, bits, _LEAST_EXPONENT, out=bits)
        yield partial(np.add, bits, _RAISE, out=bits)
        yield partial(np.add, size, bits.view(np.float32), out=size)
        yield partial(np.bitwise_and, wide, _WIDE_FRACTION, out=bits)
        yield partial(np.right_shift, wide, _13, out=wide)
        yield partial(np.bitwise_and, wide, _WIDE_EXPONENT, out=wide)
        yield partial(np.add, wide, bits, out=wide)
        yield partial(np.right_shift, given, _16, out=bits)
        yield partial(np.bitwise_and, bits, _WIDE_SIGN, out=bits)
        yield partial(np.bitwise_or, wide, bits, out=wide)
        yield partial(np.copyto, target.view(np.uint16), wide, casting="unsafe")
        yield partial(np.isnan, source, out=mask)
