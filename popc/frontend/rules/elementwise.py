"""Elementwise operators."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import default_domain, same_op
from popc.ir import Tensor

__all__ = ["RULES"]


def _binary(node: Node) -> Tensor:
    """Arithmetic with broadcasting; before opset 7 it was asked for by attributes."""
    left, right = node.input(0), node.input(1)
    if node.version < 7 and node.integer("broadcast", 0):
        right = _legacy_broadcast(node, left, right)
    return node.emit(node.op_type, [left, right])


def _legacy_broadcast(node: Node, left: Tensor, right: Tensor) -> Tensor:
    """Align ``right`` with ``left`` from ``axis`` on (default: with its last dimensions)."""
    default = left.type.rank - right.type.rank
    axis = node.integer("axis", default) % max(left.type.rank, 1)
    missing = left.type.rank - axis - right.type.rank
    if missing <= 0:
        return right
    shape = right.type.shape + (1,) * missing
    return node.emit("Reshape", [right], {"shape": shape})


RULES: Final = default_domain({
    "Abs": same_op,
    "Add": _binary,
    "Exp": same_op,
    "Mul": _binary,
    "Neg": same_op,
    "Relu": same_op,
    "Sub": _binary,
})
