"""Reductions along axes, and their running forms."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import along_axis, default_domain, integers_of, known_scalar
from popc.ir import AttributeMap, Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError

__all__ = ["RULES"]


def _reduce(node: Node) -> Tensor:
    """The axes moved from an attribute to an input in opset 18 (ReduceSum: 13)."""
    x = node.input(0)
    axes = _reduced_axes(node, x.type.rank)
    attributes: AttributeMap = {"axes": axes, "keepdims": node.integer("keepdims", 1)}
    return node.emit(node.op_type, [x], attributes)


def _reduced_axes(node: Node, rank: int) -> tuple[int, ...]:
    axes = integers_of(node, 1, "axes", "the set of reduced axes")
    if not axes:
        return () if node.integer("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({normal_axis(axis, rank) for axis in axes}))


def _arg(node: Node) -> Tensor:
    x = node.input(0)
    attributes = {
        "axis": normal_axis(node.integer("axis", 0), x.type.rank),
        "keepdims": node.integer("keepdims", 1),
        "select_last_index": node.integer("select_last_index", 0),
    }
    return node.emit(node.op_type, [x], attributes)


def _accumulate(node: Node) -> Tensor:
    """Along an axis that is known (attribute ``axis``), or else remains an operand."""
    x = node.input(0)
    attributes: AttributeMap = {
        "exclusive": node.integer("exclusive", 0),
        "reverse": node.integer("reverse", 0),
    }
    axis = 0 if x.type.rank == 1 else known_scalar(node, 1)
    if axis is None:
        return node.emit(node.op_type, [x, node.input(1)], attributes)
    attributes["axis"] = normal_axis(int(axis), x.type.rank)
    return node.emit(node.op_type, [x], attributes)


def _lp_normalization(node: Node) -> Tensor:
    """Elements over their norm; where that is zero, so are they, and the result is zero."""
    x = node.input(0)
    p = node.integer("p", 2)
    if p not in (1, 2):
        raise ModelError(f"p must be 1 or 2, not {p}")
    axis = normal_axis(node.integer("axis", -1), x.type.rank)
    norm = node.emit(f"ReduceL{p}", [x], {"axes": (axis,), "keepdims": 1})
    zero = node.constant(0.0, x.type.dtype)
    one = node.constant(1.0, x.type.dtype)
    divisor = node.emit("Where", [node.emit("Equal", [norm, zero]), one, norm])
    return node.emit("Div", [x, divisor])


RULES: Final = default_domain(
    {
        "ArgMax": _arg,
        "ArgMin": _arg,
        "CumProd": _accumulate,
        "CumSum": _accumulate,
        "Hardmax": along_axis,
        "LpNormalization": _lp_normalization,
        "ReduceL1": _reduce,
        "ReduceL2": _reduce,
        "ReduceLogSum": _reduce,
        "ReduceLogSumExp": _reduce,
        "ReduceMax": _reduce,
        "ReduceMean": _reduce,
        "ReduceMin": _reduce,
        "ReduceProd": _reduce,
        "ReduceSum": _reduce,
        "ReduceSumSquare": _reduce,
    }
)
