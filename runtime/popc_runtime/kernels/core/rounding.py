"""Rounding float32 numbers to those that float16 or bfloat16 has, in place.

A kernel whose result is float16 normally rounds it to nearest.  Here are the other ways: stochastic
rounding, which takes either neighbour with a probability that grows with its nearness, so that the
mean of many roundings is the number itself; and, in place of a number that is too large for the
format, nan or the largest number that it has.

What is left is exact in the narrow format, unless it overflows, so the conversion that follows
rounds nothing more.

Numbers between the largest of the format and what rounds to infinity go where rounding to nearest
takes them.  Of the bits that are cut off, 13 count for float16 and 16 for bfloat16: that is all of
them, but for numbers below the least normal float16, which are first rounded to nearest at 2^-37.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array, DType
from popc_runtime.ground.frozen import frozen
from popc_runtime.kernels.core.binding import Call, Scratch
from popc_runtime.kernels.core.random_state import RandomState
from popc_runtime.kernels.core.rounding_mode import Rounding

__all__ = ["rounding_calls", "to_nearest_half"]

_BLOCK: Final = 24576  # elements: five arrays of as many fit a second-level cache

_SIGN: Final = np.asarray(0x80000000, np.uint32)
_SIZE: Final = np.asarray(0x7FFFFFFF, np.uint32)
_INFINITY: Final = 0x7F800000  # the bits of infinity in float32
_NAN: Final = np.asarray(np.nan, np.float32)


@frozen
class _Narrow:
    """A narrow format, by the bit patterns that float32 has for its numbers.

    Attributes:
        cut: How many of the last bits of a normal number it does not have.
        largest: The largest finite number.
        overflow: The least number that rounds to infinity.
        least_normal: The least normal number; 0 if it is that of float32.
    """

    cut: int
    largest: int
    overflow: int
    least_normal: int


_NARROW: Final = {
    DType.FLOAT16: _Narrow(13, 0x477FE000, 0x477FF000, 0x38800000),
    DType.BFLOAT16: _Narrow(16, 0x7F7F0000, 0x7F7F8000, 0),
}


def rounding_calls(
    rounding: Rounding, values: Array, dtype: DType, scratch: Scratch, random: RandomState
) -> Iterator[Call]:
    """Round ``values``, C-contiguous float32, to numbers of ``dtype``, in place."""
    narrow, flat = _NARROW[dtype], values.reshape(-1)
    capacity = min(flat.size, _BLOCK)
    spare = [scratch.take((capacity,), np.uint32) for _ in range(3)]
    mask = scratch.take((capacity,), np.bool_)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        size, base, bits = (array[: block.size] for array in spare)
        within = mask[: block.size]
        if rounding.stochastic:
            yield from _stochastic(block, narrow, size, base, bits, within, random)
        if rounding.overflow != "infinity":
            yield from _find_overflow(block, narrow, size, within)
            yield from _REPLACEMENTS[rounding.overflow](block, narrow, size, within)


def _stochastic(
    block: Array,
    narrow: _Narrow,
    size: Array,
    base: Array,
    bits: Array,
    within: Array,
    random: RandomState,
) -> Iterator[Call]:
    """Adds random bits below the last one that stays, and cuts there.

    Subnormal numbers of the format are spaced as in the binade above: they are rounded there, that
    is, with the least normal number added.
    """
    given, cut = block.view(np.uint32), np.asarray((1 << narrow.cut) - 1, np.uint32)
    yield partial(np.bitwise_and, given, _SIZE, out=size)
    yield partial(np.less_equal, size, np.asarray(narrow.largest, np.uint32), out=within)
    if narrow.least_normal:
        yield from _least_normal_if_smaller(size, narrow.least_normal, base)
        yield partial(np.add, size.view(np.float32), base.view(np.float32), out=_floats(size))
    yield partial(_draw, random, bits)
    yield partial(np.bitwise_and, bits, cut, out=bits)
    yield partial(np.add, size, bits, out=size)
    yield partial(np.bitwise_and, size, np.invert(cut), out=size)
    if narrow.least_normal:
        yield partial(np.subtract, size.view(np.float32), base.view(np.float32), out=_floats(size))
    yield partial(np.bitwise_and, given, _SIGN, out=bits)
    yield partial(np.bitwise_or, size, bits, out=size)
    yield partial(np.copyto, given, size, where=within)


def _floats(bits: Array) -> Array:
    return bits.view(np.float32)


def _least_normal_if_smaller(size: Array, least_normal: int, base: Array) -> Iterator[Call]:
    """``least_normal`` where ``size`` is less, else 0: the sign of the difference says which."""
    pattern, number = np.asarray(least_normal, np.int32), base.view(np.int32)
    yield partial(np.subtract, size.view(np.int32), pattern, out=number)
    yield partial(np.right_shift, number, np.asarray(31, np.int32), out=number)
    yield partial(np.bitwise_and, number, pattern, out=number)


def _draw(random: RandomState, bits: Array) -> None:
    np.copyto(bits, random.rounding_bits(bits.size))


def _find_overflow(block: Array, narrow: _Narrow, size: Array, within: Array) -> Iterator[Call]:
    """Patterns from the overflow to infinity are one range of unsigned numbers from 0."""
    overflow = np.asarray(narrow.overflow, np.uint32)
    yield partial(np.bitwise_and, block.view(np.uint32), _SIZE, out=size)
    yield partial(np.subtract, size, overflow, out=size)
    yield partial(np.less, size, np.asarray(_INFINITY - narrow.overflow, np.uint32), out=within)


def _nan(block: Array, narrow: _Narrow, size: Array, within: Array) -> Iterator[Call]:
    del narrow, size
    yield partial(np.copyto, block, _NAN, where=within)


def _largest(block: Array, narrow: _Narrow, size: Array, within: Array) -> Iterator[Call]:
    bits = block.view(np.uint32)
    yield partial(np.bitwise_and, bits, _SIGN, out=size)
    yield partial(np.bitwise_or, size, np.asarray(narrow.largest, np.uint32), out=size)
    yield partial(np.copyto, bits, size, where=within)


_REPLACEMENTS: Final[dict[str, Callable[[Array, _Narrow, Array, Array], Iterator[Call]]]] = {
    "largest": _largest,
    "nan": _nan,
}


# Adding a number that is 1.5 times as large as the 13th power of two above moves the last bits of
# a float16 to where a float32 ends; the 1.5 keeps the sum in one binade for both signs.
_EXPONENT: Final = np.asarray(_INFINITY, np.uint32)
_LEAST_NORMAL: Final = np.asarray(_NARROW[DType.FLOAT16].least_normal, np.uint32)
_ABOVE: Final = np.asarray((13 << 23) + (1 << 22), np.uint32)
_TO_LIMIT: Final = np.asarray(2.0**112, np.float32)  # makes infinity of what float16 does not have
_BACK: Final = np.asarray(2.0**-112, np.float32)


def to_nearest_half(values: Array, scratch: Scratch) -> Iterator[Call]:
    """Round ``values``, C-contiguous float32, to the nearest numbers that float16 has, in place."""
    flat = values.reshape(-1)
    spare = scratch.take((min(flat.size, _BLOCK),), np.uint32)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        power = spare[: block.size]
        yield partial(np.bitwise_and, block.view(np.uint32), _EXPONENT, out=power)
        yield partial(np.maximum, power, _LEAST_NORMAL, out=power)
        yield partial(np.add, power, _ABOVE, out=power)
        yield partial(np.add, block, _floats(power), out=block)
        yield partial(np.subtract, block, _floats(power), out=block)
        yield partial(np.multiply, block, _TO_LIMIT, out=block)
        yield partial(np.multiply, block, _BACK, out=block)
