"""The formats of floats of eight bits: sign, exponent, mantissa."""

from __future__ import annotations

from math import inf, ldexp, nan

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Final

__all__ = ["FLOATS8", "SIGN", "Float8", "number_of"]

SIGN: Final = 0x80


@frozen
class Float8:
    """A format.

    Attributes:
        mantissa: Bits of it.
        bias: Of the exponent.
        largest: The code of the largest finite number.
        overflow: The code of what is larger, without its sign: infinity or NaN.
        unsigned: Whether there is no negative zero, whose code is that of NaN.
    """

    mantissa: int
    bias: int
    largest: int
    overflow: int
    unsigned: bool = False

    def magnitude(self, code: int) -> float:
        """The number of a code without its sign, as if all of them were finite."""
        exponent, fraction = code >> self.mantissa, code & ((1 << self.mantissa) - 1)
        whole = fraction + ((exponent > 0) << self.mantissa)
        return ldexp(whole, max(exponent, 1) - self.bias - self.mantissa)


FLOATS8: Final = {
    DType.FLOAT8E4M3FN: Float8(3, 7, 0x7E, 0x7F),
    DType.FLOAT8E4M3FNUZ: Float8(3, 8, 0x7F, SIGN, unsigned=True),
    DType.FLOAT8E5M2: Float8(2, 15, 0x7B, 0x7C),
    DType.FLOAT8E5M2FNUZ: Float8(2, 16, 0x7F, SIGN, unsigned=True),
}


def number_of(code: int, dtype: DType) -> float:
    """The number that a code stands for."""
    form, size = FLOATS8[dtype], code & (SIGN - 1)
    if form.unsigned and code == SIGN:
        return nan
    number = form.magnitude(size)
    if size > form.largest:
        number = inf if dtype is DType.FLOAT8E5M2 and size == form.overflow else nan
    return -number if code & SIGN else number
