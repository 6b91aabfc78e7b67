"""The type in which products add up: attribute ``partials`` of matrix products and convolutions.

Absent or "float": in float32, and one rounding at the end.  "half", for float16 only: the sum is
rounded to float16 after each part of it; `popc_runtime.kernels.parts.partials` says what the parts
are.
"""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ops.infer import check_choice
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["PARTIALS", "SUMS_OF_PRODUCTS", "check_partials"]

PARTIALS: Final = "partials"
SUMS_OF_PRODUCTS: Final = frozenset({"Conv", "ConvTranspose", "ConvWeightsGrad", "Gemm", "MatMul"})


def check_partials(attributes: Attributes, result: TensorType) -> None:
    """The attribute, if there is one, is known and fits the type of the result."""
    if PARTIALS not in attributes:
        return
    check_choice(attributes, PARTIALS, ("float", "half"))
    if attributes[PARTIALS] == "half" and result.dtype is not DType.FLOAT16:
        raise ModelError(
            f"products of {result.dtype} cannot add up in half",
            hint="set __partials_type to half only where the operands are float16",
        )
