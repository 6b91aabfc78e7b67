"""Products of floats of eight bits, which the matrix unit of some chips takes as they are stored.

A graph converts them in front of a product; such a chip does not: their powers of two are scales of
the product, its sums are half precision, and nothing of a wider type is ever stored.
"""

from __future__ import annotations

from typing import Final

from popc.ir import Op, Tensor
from popc.ops.float8 import widens_device_float
from popc.target import Target
from popc_runtime.format import DType

__all__ = ["device_dtype", "multiplies_quarters"]

_PRODUCTS: Final = frozenset({"Conv", "Gemm", "MatMul"})


def multiplies_quarters(op: Op, target: Target) -> bool:
    """True if ``op`` is a product whose two operands are converted from what a chip multiplies."""
    if op.op_type not in _PRODUCTS or not target.conv.fp8_in_fp16_out_units:
        return False
    return all(_is_converted(op.operand(index)) for index in range(2))


def device_dtype(tensor: Tensor, target: Target) -> DType:
    """The element type of ``tensor`` on the chip."""
    if _is_converted(tensor) and all(_takes(user, tensor, target) for user in tensor.uses):
        return _source(tensor).type.dtype
    return tensor.type.dtype


def _is_converted(tensor: Tensor) -> bool:
    return tensor.producer is not None and widens_device_float(tensor.producer)


def _source(tensor: Tensor) -> Tensor:
    assert tensor.producer is not None, "it is converted"
    return tensor.producer.operand(0)


def _takes(user: Op, tensor: Tensor, target: Target) -> bool:
    return multiplies_quarters(user, target) and tensor in (user.operand(0), user.operand(1))
