"""Operands of integer products and convolutions, as numpy's kernels and encoders read them."""

from __future__ import annotations

from popc_runtime.format.dtypes import DType
from popc_runtime.format.program import Attributes
from popc_runtime.ground.hints import Final

__all__ = ["BIAS", "INTEGER_BIAS", "RESIDUAL", "SCALE", "quotient_limits"]

# After both factors and their zero points
INTEGER_BIAS: Final = 4
SCALE: Final = 5
BIAS: Final = 6
RESIDUAL: Final = 7


def quotient_limits(attributes: Attributes, dtype: DType | None) -> tuple[float, float] | None:
    """The limits of values that are rounded to 8 bits; ``None`` for other results."""
    if dtype not in (DType.INT8, DType.UINT8):
        return None
    least = -128 if dtype is DType.INT8 else 0
    zero = int(str(attributes["quantize_zero"]))
    return float(least - zero), float(least + 255 - zero)
