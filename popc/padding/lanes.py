"""Facts about positions that an axis is filled up with, and what elementwise ops make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from math import inf, isfinite, isnan, prod
from typing import Final, TypeAlias

from popc.ir import Op

__all__ = [
    "LOW",
    "Lane",
    "LaneKind",
    "Lanes",
    "computed",
    "finite_function",
    "is_finite",
    "is_low",
    "is_zero",
]

LOW: Final = -9999.0  # exp(LOW) is 0 in every type


class LaneKind(Enum):
    """A kind of elements, where they are not all one number."""

    ORDINARY = "finite numbers like any"
    LOW = "finite numbers of -9999 or less"
    MIXED = "ordinary numbers and low ones, or minus infinity, but some are ordinary"
    BAD = "perhaps no numbers"


# A number that all elements have, or what else is known of them.
Lane: TypeAlias = "float | LaneKind"

# By axis; what is said of an axis holds where the other axes have positions that were there before.
Lanes: TypeAlias = "dict[int, Lane]"

_Function: TypeAlias = Callable[[Sequence[Lane]], Lane]


def is_zero(lane: Lane | None) -> bool:
    """True for zeros."""
    return lane == 0.0


def is_low(lane: Lane) -> bool:
    """True for numbers that have no share in a Softmax."""
    return lane is LaneKind.LOW or (isinstance(lane, float) and lane <= LOW)


def is_finite(lane: Lane | None) -> bool:
    """True for finite numbers that are not low by themselves."""
    return lane is LaneKind.ORDINARY or (isinstance(lane, float) and isfinite(lane))


def finite_function(lane: Lane) -> Lane:
    """The lane of a function that is finite for finite numbers."""
    return LaneKind.ORDINARY if is_finite(lane) else LaneKind.BAD


def computed(op: Op, lanes: Sequence[Lane]) -> Lane:
    """The lane of the result of an elementwise op."""
    if LaneKind.BAD in lanes:
        return LaneKind.BAD
    known = _COMPUTED.get(op.op_type)
    if known is not None:
        return known(lanes)
    if op.op_type in _PARTIAL:
        ordinary = all(lane is LaneKind.ORDINARY for lane in lanes)
        return LaneKind.ORDINARY if ordinary else LaneKind.BAD
    return _ordinary(lanes)


def _ordinary(lanes: Sequence[Lane]) -> Lane:
    return LaneKind.ORDINARY if all(map(is_finite, lanes)) else LaneKind.BAD


def _numbers(lanes: Sequence[Lane]) -> list[float]:
    return [lane for lane in lanes if isinstance(lane, float)]


def _exact(function: Callable[..., float | bool]) -> _Function:
    """A function that gives the same in every type where it is given numbers."""

    def of(lanes: Sequence[Lane]) -> Lane:
        numbers = _numbers(lanes)
        if len(numbers) == len(lanes):
            return float(function(*numbers))
        return _ordinary(lanes)

    return of


def _add(lanes: Sequence[Lane]) -> Lane:
    numbers = _numbers(lanes)
    if len(numbers) == len(lanes):
        return float(sum(numbers))
    if inf in numbers:
        return LaneKind.BAD
    if -inf in numbers:
        return -inf
    if LaneKind.MIXED in lanes:
        return LaneKind.MIXED
    if any(map(is_low, lanes)):
        return LaneKind.LOW
    return _ordinary(lanes)


def _subtract(lanes: Sequence[Lane]) -> Lane:
    first, second = lanes
    if isinstance(second, float):
        return _add((first, -second))
    if second is LaneKind.ORDINARY:
        return _add((first, second))
    return LaneKind.BAD


def _multiply(lanes: Sequence[Lane]) -> Lane:
    numbers = _numbers(lanes)
    if len(numbers) == len(lanes):
        return float(prod(numbers))
    if not all(is_finite(lane) or lane is LaneKind.LOW for lane in lanes):
        return LaneKind.BAD
    return 0.0 if 0.0 in numbers else _ordinary(lanes)


def _divide(lanes: Sequence[Lane]) -> Lane:
    first, second = lanes
    if is_zero(second) or not is_finite(second) or not is_finite(first):
        return LaneKind.BAD
    if isinstance(first, float) and isinstance(second, float):
        return first / second
    return 0.0 if is_zero(first) else LaneKind.ORDINARY


def _choose(lanes: Sequence[Lane]) -> Lane:
    condition, first, second = lanes
    if isinstance(condition, float):
        return first if condition else second
    if isinstance(first, float) and first == second:
        return first
    chosen = (first, second)
    if all(map(is_finite, chosen)):
        return LaneKind.ORDINARY
    if all(is_finite(lane) or is_low(lane) or lane is LaneKind.MIXED for lane in chosen):
        return LaneKind.MIXED
    return LaneKind.BAD


def _is_nan(lanes: Sequence[Lane]) -> Lane:
    (lane,) = lanes
    return float(isnan(lane)) if isinstance(lane, float) else 0.0


def _exponential(lanes: Sequence[Lane]) -> Lane:
    (lane,) = lanes
    return 0.0 if is_low(lane) else _ordinary(lanes)


def _same(lanes: Sequence[Lane]) -> Lane:
    return lanes[0]


_COMPUTED: Final[Mapping[str, _Function]] = {
    "Abs": _exact(abs),
    "Add": _add,
    "And": _exact(lambda a, b: bool(a) and bool(b)),
    "Cast": _same,
    "Copy": _same,
    "Detach": _same,
    "Div": _divide,
    "Equal": _exact(lambda a, b: a == b),
    "Exp": _exponential,
    "Greater": _exact(lambda a, b: a > b),
    "GreaterOrEqual": _exact(lambda a, b: a >= b),
    "IsNaN": _is_nan,
    "Less": _exact(lambda a, b: a < b),
    "LessOrEqual": _exact(lambda a, b: a <= b),
    "Max": _exact(max),
    "Min": _exact(min),
    "Mul": _multiply,
    "Neg": _exact(lambda a: -a),
    "Not": _exact(lambda a: not a),
    "Or": _exact(lambda a, b: bool(a) or bool(b)),
    "Relu": _exact(lambda a: max(a, 0.0)),
    "Sub": _subtract,
    "Sum": _add,
    "Where": _choose,
    "Xor": _exact(lambda a, b: bool(a) != bool(b)),
}
# Not defined, or not finite, for all finite numbers.
_PARTIAL: Final = frozenset(
    ("Acos", "Acosh", "Asin", "Atanh", "Log", "Log1p", "Mod", "Pow", "Reciprocal", "Sqrt", "Tan")
)
