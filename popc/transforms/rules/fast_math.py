"""Arithmetic written another way, as long as only rounding, NaNs and infinities tell."""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.ir import Graph, Op, Tensor
from popc.ops.build import build
from popc.transforms.match import are_moderate, is_exactly
from popc.transforms.rules.rule import LocalRule, sole_nearby
from popc_runtime.format import Array
from popc_runtime.kernels.core.stored import as_stored, floats_of

__all__ = ["FAST_MATH", "RULES"]

FAST_MATH: Final = "fast_math"  # the level of rules that enable_fast_math switches on

_FEWER: Final = 4  # inverses pay if there are so many times as many quotients


def _inverse_factor(graph: Graph, op: Op) -> Tensor | None:
    """x / y as x * (1 / y), if there are fewer numbers y, or all of them are known."""
    x, y = op.operand(0), op.operand(1)
    if not op.output.type.dtype.is_float:
        return None
    known = _values(y)
    if known is not None:
        with np.errstate(all="ignore"):
            inverse = _constant(graph, y, 1 / known)
    elif y.type.size * _FEWER <= op.output.type.size:
        inverse = build(graph, "Reciprocal", [y], settings=op.settings).output
    else:
        return None
    return None if inverse is None else _built(graph, op, "Mul", x, inverse)


def _joined_constants(graph: Graph, op: Op) -> Tensor | None:
    """(x * 2) * 3 as x * 6, and (x + 2) + 3 as x + 5."""
    for side in (0, 1):
        outer = _values(op.operand(side))
        inner = sole_nearby(graph, op, op.operand(1 - side), op.op_type)
        if outer is None or inner is None or inner.output.type != op.output.type:
            continue
        for inner_side in (0, 1):
            first = _values(inner.operand(inner_side))
            if first is None:
                continue
            with np.errstate(all="ignore"):
                both = first * outer if op.op_type == "Mul" else first + outer
            constant = _constant(graph, op.operand(side), both)
            if constant is not None:
                return _built(graph, op, op.op_type, inner.operand(1 - inner_side), constant)
    return None


def _common_factor(graph: Graph, op: Op) -> Tensor | None:
    """x * c + y * c as (x + y) * c, and likewise of differences."""
    first, second = (sole_nearby(graph, op, op.operand(side), "Mul") for side in (0, 1))
    if first is None or second is None or first is second:
        return None
    if not op.output.type.dtype.is_float:
        return None
    for side in (0, 1):
        for other in (0, 1):
            if first.operand(side) is not second.operand(other):
                continue
            x, y = first.operand(1 - side), second.operand(1 - other)
            if x.type == y.type == op.output.type:
                total = build(graph, op.op_type, [x, y], settings=op.settings).output
                return _built(graph, op, "Mul", total, first.operand(side))
    return None


def _known_difference(graph: Graph, op: Op) -> Tensor | None:
    """x - x as zeros, whatever x is."""
    if op.operand(0) is not op.operand(1):
        return None
    return _filled(graph, op, 0.0)


def _known_quotient(graph: Graph, op: Op) -> Tensor | None:
    """x / x as ones, whatever x is."""
    if op.operand(0) is not op.operand(1) or not op.output.type.dtype.is_float:
        return None
    return _filled(graph, op, 1.0)


def _known_product(graph: Graph, op: Op) -> Tensor | None:
    """x * 0 as zeros, whatever x is."""
    if any(is_exactly(op.operand(side), 0) for side in (0, 1)):
        return _filled(graph, op, 0.0)
    return None


def _values(tensor: Tensor) -> Array | None:
    """Known numbers, in double precision; ``None`` if they are not known, or no floats."""
    if tensor.data is None or not tensor.type.dtype.is_float:
        return None
    return floats_of(tensor.data, tensor.type.dtype).astype(np.float64)


def _constant(graph: Graph, like: Tensor, values: Array) -> Tensor | None:
    """Numbers in the type of ``like``; ``None`` if it does not have them all."""
    dtype = like.type.dtype
    if not np.isfinite(values).all() or not are_moderate(values, dtype):
        return None
    type_ = like.type.with_shape(values.shape)
    return graph.add_constant(graph.fresh_name(like.name), type_, as_stored(values, dtype))


def _filled(graph: Graph, op: Op, value: float) -> Tensor:
    dtype = op.output.type.dtype
    type_ = op.output.type.with_shape(())
    name = graph.fresh_name(f"{op.output.name}_known")
    scalar = graph.add_constant(name, type_, as_stored(np.asarray(value), dtype))
    shape = {"shape": op.output.type.shape}
    return build(graph, "Expand", [scalar], {**shape}, settings=op.settings).output


def _built(graph: Graph, op: Op, op_type: str, x: Tensor, y: Tensor) -> Tensor:
    return build(graph, op_type, [x, y], settings=op.settings).output


_ROUNDED: Final = "equal up to rounding"

RULES: Final = (
    LocalRule(
        "known_values",
        FAST_MATH,
        "Makes zeros of x - x and x * 0, and ones of x / x, also where x is NaN or infinite.",
        {"Sub": _known_difference, "Div": _known_quotient, "Mul": _known_product},
        results="no NaN where there was one",
        late=True,
    ),
    LocalRule(
        "inverse_factors",
        FAST_MATH,
        "Multiplies by the inverse of a divisor that is known, or that divides many numbers.",
        {"Div": _inverse_factor},
        results=_ROUNDED,
        late=True,
    ),
    LocalRule(
        "joined_constants",
        FAST_MATH,
        "Makes one factor, or term, of two constant ones that follow each other.",
        dict.fromkeys(("Mul", "Add"), _joined_constants),
        results=_ROUNDED,
        late=True,
    ),
    LocalRule(
        "common_factors",
        FAST_MATH,
        "Multiplies a sum, or difference, by what both of its operands have been multiplied by.",
        dict.fromkeys(("Add", "Sub"), _common_factor),
        results=_ROUNDED,
        late=True,
    ),
)
