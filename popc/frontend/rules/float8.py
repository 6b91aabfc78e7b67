"""Floats of eight bits: powers of two as scales, and PopART's products."""

from __future__ import annotations

from math import frexp
from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import converted
from popc.ir import AttributeMap, Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["EXACT_HALVES", "check_exponent", "exponent_of", "has_float8", "scaled_product"]

_EXPONENTS: Final = range(-32, 32)  # that an IPU multiplies while it converts
# Exponents with which the largest number stays below 2^16 and the smallest one above 2^-25.
EXACT_HALVES: Final = {
    DType.FLOAT8E4M3FN: range(-15, 8),
    DType.FLOAT8E4M3FNUZ: range(-14, 9),
    DType.FLOAT8E5M2: range(-8, 1),
    DType.FLOAT8E5M2FNUZ: range(-7, 1),
}


def exponent_of(node: Node, index: int) -> int | None:
    """The exponent of a known scale that is one power of two within what an IPU multiplies."""
    value = node.known(index)
    if value is None or value.size != 1 or node.input(index).type.dtype is DType.BFLOAT16:
        return None
    fraction, exponent = frexp(float(value.reshape(()).item()))
    return exponent - 1 if fraction == 0.5 and exponent - 1 in _EXPONENTS else None


def check_exponent(node: Node, index: int) -> None:
    """Refuse a known exponent that an IPU does not multiply.

    Raises:
        ModelError: it is out of range.
    """
    value = node.known(index)
    if value is not None and value.size == 1 and int(value.reshape(()).item()) not in _EXPONENTS:
        raise ModelError(f"log2_scale is {value.reshape(()).item()}, expected -32 to 31")


def has_float8(node: Node) -> bool:
    """True if one of the two operands of a product has eight bits."""
    return any(node.input(index).type.dtype.is_float8 for index in range(2))


def scaled_product(node: Node, op_type: str, attributes: AttributeMap) -> Tensor:
    """PopART's product of two operands of eight bits: float16, scaled by 2 ** operand 2.

    Raises:
        ModelError: only one operand has eight bits, or the exponent is not one int32.
    """
    types = [node.input(index).type.dtype for index in range(2)]
    if not all(dtype.is_float8 for dtype in types):
        raise ModelError(
            f"operands of types {types[0]} and {types[1]}: a product of eight-bit floats needs "
            "both of them; cast the other one, or cast both to float16"
        )
    exponent = node.optional(2)
    if exponent is not None:
        check_exponent(node, 2)
    exact = exponent is None or _is_exact_half(node, types[1])
    # Else a half would overflow, or lose digits, before it is scaled.
    to = {"to": (DType.FLOAT16 if exact else DType.FLOAT32).value}
    first = node.emit("CastThenPow2Scale", [node.input(0)], {**to})
    second = node.emit("CastThenPow2Scale", [node.input(1), exponent], {**to})
    return converted(node, node.emit(op_type, [first, second], {**attributes}), DType.FLOAT16)


def _is_exact_half(node: Node, dtype: DType) -> bool:
    """True if every number of ``dtype``, times the known power of two, is a half."""
    value = node.known(2)
    return value is not None and value.size == 1 and value.item() in EXACT_HALVES[dtype]
