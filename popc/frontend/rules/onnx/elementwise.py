"""Elementwise operators."""

from __future__ import annotations

from functools import reduce
from typing import Final

from popc.frontend.node import ImportRule, Node
from popc.frontend.rules.common import default_domain, same_op
from popc.ir import AttributeMap, Tensor
from popc_runtime.errors import ModelError

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


def _folded(op_type: str) -> ImportRule:
    """A variadic operator as a chain of binary ops; one operand alone is the result."""

    def rule(node: Node) -> Tensor:
        operands = node.tensors()
        if not operands:
            raise ModelError("at least one input is required")
        return reduce(lambda left, right: node.emit(op_type, [left, right]), operands)

    return rule


def _mean(node: Node) -> Tensor:
    total = _folded("Add")(node)
    assert isinstance(total, Tensor)
    count = node.constant(float(len(node.inputs)), total.type.dtype)
    return node.emit("Div", [total, count])


def _with_attributes(**defaults: int | str) -> ImportRule:
    """An IR op of the same name with the listed attributes (here with their defaults)."""

    def rule(node: Node) -> Tensor:
        attributes: AttributeMap = {
            name: node.text(name) if isinstance(default, str) else node.integer(name, default)
            for name, default in defaults.items()
        }
        return node.emit(node.op_type, node.tensors(), attributes)

    return rule


_UNARY: Final = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos"),
    *("Cosh", "Exp", "Floor", "IsNaN", "Log", "Neg", "Not", "Reciprocal", "Round", "Sign"),
    *("Sin", "Sinh", "Sqrt", "Tan"),
)
_BINARY: Final = (
    *("Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater"),
    *("GreaterOrEqual", "Less", "LessOrEqual", "Mul", "Or", "Pow", "Sub", "Xor"),
)

RULES: Final = default_domain(
    {
        **dict.fromkeys(_UNARY, same_op),
        **dict.fromkeys(_BINARY, _binary),
        "BitShift": _with_attributes(direction=""),
        "IsInf": _with_attributes(detect_negative=1, detect_positive=1),
        "Max": _folded("Max"),
        "Mean": _mean,
        "Min": _folded("Min"),
        "Mod": _with_attributes(fmod=0),
        "Sum": _folded("Add"),
        "Where": same_op,
    }
)
