"""Error bounds of functions of single elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from popc_runtime.format import Array
from tools.campaigns.random_models.rules import FLOAT32, FUNCTION, Rule, Step, unit
from tools.campaigns.random_models.rules_of_moves import refused_if_uncertain

__all__ = [
    "added",
    "between",
    "chosen",
    "compared",
    "dequantized",
    "divided",
    "function",
    "largest",
    "less_one",
    "logical",
    "multiplied",
    "nothing",
    "rounded",
    "squared",
    "steep",
]


def between(extra: Callable[[Step], Array]) -> Rule:
    """A function that rises or falls: what is between the results of the ends of an interval."""

    def rule(step: Step) -> list[Array]:
        x = step.operand(0)
        here = x.array.astype(np.float64)
        reach = x.error + 0.0
        if step.node.op_type == "QuantizeLinear":
            reach = reach + 4 * FLOAT32 * np.abs(here)
        ends = [as_operand(here + side * reach, x.array) for side in (-1, 1)]
        moved = [np.abs(step.through(end) - step.y) for end in ends]
        return [np.maximum(*moved) + extra(step)]

    return rule


def as_operand(values: Array, like: Array) -> Array:
    if like.dtype.kind == "f":
        return values.astype(np.float32)
    if like.dtype == np.bool_:
        return values > 0.5
    limits = np.iinfo(like.dtype)
    return np.clip(values, limits.min, limits.max).astype(like.dtype)


def dequantized(step: Step) -> list[Array]:
    """(x - zero point) scale, with a scale that may be off."""
    (error,) = between(rounded)(step)
    scale = step.operand(1)
    if not scale.error.any():
        return [error]
    relative = float((scale.error / np.abs(scale.array)).max())
    return [error + np.abs(step.y) * relative]


def rounded(step: Step) -> Array:
    """Two roundings of the result."""
    return step.rounding()


def nothing(step: Step) -> Array:
    """Nothing is rounded."""
    return np.zeros(step.y.shape)


def function(step: Step) -> Array:
    """Some units in the last place of the largest result."""
    peak = float(np.abs(step.y).max(initial=0))
    return step.rounding() + FUNCTION * peak


def less_one(step: Step) -> Array:
    """Some units of a multiple of e^x, from which that multiple is subtracted ("Elu", "Selu")."""
    alpha, gamma = (1.67326, 1.0507) if step.node.op_type == "Selu" else (1.0, 1.0)
    factor = float(step.attribute("alpha", alpha) * step.attribute("gamma", gamma))
    return function(step) + FUNCTION * abs(factor)


def steep(slope: float, extra: Callable[[Step], Array]) -> Rule:
    """A function that is nowhere steeper than ``slope``."""
    return lambda step: [slope * step.operand(0).error + extra(step)]


def added(step: Step) -> list[Array]:
    """Sums of two or more tensors, and differences."""
    given = [x for x in step.operands if x is not None]
    error = sum((x.error for x in given), step.rounding())
    if len(given) > 2:  # sums on the way are rounded too
        sizes = sum(np.abs(x.array.astype(np.float64)) for x in given)
        error = error + 2 * len(given) * unit(given[0].array.dtype) * sizes
    values = [x.array.astype(np.float64) for x in given]
    if step.node.op_type == "Sub":
        values[1] = -values[1]
    return [unless_it_wraps(step, sum(values, np.zeros(())), error)]


def unless_it_wraps(step: Step, exact: Array, error: Array) -> Array:
    """``error``, and no bound at all where integers that are off by it may leave their type."""
    result = step.results[0]
    assert result is not None
    if result.dtype.kind not in "iu":
        return error
    limits = np.iinfo(result.dtype)
    leaves = (exact - error < limits.min) | (exact + error > limits.max)
    return np.where(leaves & (error > 0), np.inf, error)


def multiplied(step: Step) -> list[Array]:
    """Products of two tensors."""
    a, b = step.operand(0), step.operand(1)
    sizes = [np.abs(x.array.astype(np.float64)) for x in (a, b)]
    error = sizes[0] * b.error + sizes[1] * a.error + a.error * b.error + step.rounding()
    exact = a.array.astype(np.float64) * b.array.astype(np.float64)
    return [unless_it_wraps(step, exact, error)]


def divided(step: Step) -> list[Array]:
    """Quotients: more uncertain the closer a divisor is to zero."""
    a, b = step.operand(0), step.operand(1)
    if not a.is_float:
        return refused_if_uncertain(step)
    size = np.abs(b.array.astype(np.float64))
    rest = np.where(size > 2 * b.error, size - b.error, 0)
    error = (np.abs(step.y) * b.error + a.error) / rest
    return [np.where((a.error == 0) & (b.error == 0), 0, error) + 2 * step.rounding()]


def squared(step: Step) -> list[Array]:
    """Pow with a small whole exponent."""
    x, power = step.operand(0), step.operand(1)
    size = np.abs(x.array.astype(np.float64)) + x.error
    exponent = np.abs(power.array.astype(np.float64))
    slope = exponent * size ** np.maximum(exponent - 1, 0)
    return [slope * x.error + step.rounding() + FUNCTION * np.abs(step.y)]


def largest(step: Step) -> list[Array]:
    """Max, Min and others that are never steeper than any operand."""
    return [np.maximum.reduce(np.broadcast_arrays(*[x.error for x in step.operands if x]))]


def compared(step: Step) -> list[Array]:
    """Comparisons: either where operands may be equal or in either order."""
    a, b = step.operand(0), step.operand(1)
    apart = np.abs(a.array.astype(np.float64) - b.array.astype(np.float64))
    reach = a.error + b.error
    return [((reach > 0) & (apart <= reach)).astype(np.float64)]


def chosen(step: Step) -> list[Array]:
    """The op Where: an element of either operand if the condition may be either."""
    condition, a, b = (step.operand(i) for i in range(3))
    apart = np.abs(a.array.astype(np.float64) - b.array.astype(np.float64))
    error = np.where(condition.array, a.error, b.error)
    return [np.where(condition.error > 0, apart + a.error + b.error, error)]


def logical(step: Step) -> list[Array]:
    """Functions of truth values."""
    return [np.maximum.reduce(np.broadcast_arrays(*[x.error for x in step.operands if x]))]
