"""Elementwise ops: one output of the broadcast shape."""

from __future__ import annotations

from typing import Final

from popc.ops.infer import broadcast_result
from popc.ops.spec import OpSpec

__all__ = ["OPS"]

_UNARY: Final = OpSpec(broadcast_result(), inplace=(0,), elementwise=True)
_BINARY: Final = OpSpec(broadcast_result(), inplace=(0, 1), elementwise=True)
_COMMUTATIVE: Final = OpSpec(
    broadcast_result(), inplace=(0, 1), elementwise=True, commutative=True
)

OPS: Final[dict[str, OpSpec]] = {
    "Abs": _UNARY,
    "Add": _COMMUTATIVE,
    "Exp": _UNARY,
    "Mul": _COMMUTATIVE,
    "Neg": _UNARY,
    "Relu": _UNARY,
    "Sub": _BINARY,
}
