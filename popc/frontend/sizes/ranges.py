"""The least and the most that elements of a tensor can be, as far as the ops before it tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, floor, inf, isnan, sqrt
from typing import Final, TypeAlias

from popc.frontend.sizes.expressions import Range, product_of_ranges
from popc.ir import Op, Tensor
from popc.ir.attributes import integer
from popc_runtime.format import DType

__all__ = ["ANYTHING", "range_by_op", "range_of_type"]

# The range of a tensor that an op reads.
RangeOf: TypeAlias = Callable[[Tensor], Range]
_Rule: TypeAlias = Callable[[Op, RangeOf], Range]

ANYTHING: Final[Range] = (-inf, inf)


def range_of_type(dtype: DType) -> Range:
    """The numbers of an element type that has few; any others."""
    if dtype is DType.BOOL:
        return 0, 1
    if dtype.is_integer and dtype.itemsize <= 2:
        bits = 8 * dtype.itemsize
        return (0, 2**bits - 1) if dtype.is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return (0, inf) if dtype.is_unsigned else ANYTHING


def range_by_op(tensor: Tensor, of: RangeOf) -> Range:
    """The range of the elements of ``tensor``, by the op that computes it."""
    op = tensor.producer
    own = range_of_type(tensor.type.dtype)
    if op is None:
        return own
    places = _PLACES.get((op.op_type, op.outputs.index(tensor)))
    if places is not None:
        return 0.0, float(max(places(op), 0))
    rule = _RULES.get(op.op_type)
    if rule is None:
        return own
    low, high = rule(op, of)
    if isnan(low) or isnan(high):
        return own
    return max(low, own[0]), min(high, own[1])


def _union(*ranges: Range) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _of_first(op: Op, of: RangeOf) -> Range:
    return of(op.operand(0))


def _of_all(op: Op, of: RangeOf) -> Range:
    return _union(*(of(tensor) for tensor in op.present_inputs))


def _of_choices(op: Op, of: RangeOf) -> Range:
    return _union(of(op.operand(1)), of(op.operand(2)))


def _add(op: Op, of: RangeOf) -> Range:
    (a, b), (c, d) = of(op.operand(0)), of(op.operand(1))
    return a + c, b + d


def _sub(op: Op, of: RangeOf) -> Range:
    (a, b), (c, d) = of(op.operand(0)), of(op.operand(1))
    return a - d, b - c


def _mul(op: Op, of: RangeOf) -> Range:
    return product_of_ranges(of(op.operand(0)), of(op.operand(1)))


def _div(op: Op, of: RangeOf) -> Range:
    """By positive numbers; whole numbers are rounded towards zero."""
    (a, b), (c, d) = of(op.operand(0)), of(op.operand(1))
    if c <= 0:
        return ANYTHING
    return product_of_ranges((a, b), (0.0 if d == inf else 1 / d, 1 / c))


def _mod(op: Op, of: RangeOf) -> Range:
    """By positive numbers, with the sign of the divisor."""
    low, high = of(op.operand(1))
    if low <= 0 or integer(op.attributes, "fmod", 0):
        return ANYTHING
    return 0, high - 1 if op.output.type.dtype.is_integer else high


def _min(op: Op, of: RangeOf) -> Range:
    (a, b), (c, d) = of(op.operand(0)), of(op.operand(1))
    return min(a, c), min(b, d)


def _max(op: Op, of: RangeOf) -> Range:
    (a, b), (c, d) = of(op.operand(0)), of(op.operand(1))
    return max(a, c), max(b, d)


def _abs(op: Op, of: RangeOf) -> Range:
    low, high = of(op.operand(0))
    return max(low, -high, 0), max(-low, high)


def _neg(op: Op, of: RangeOf) -> Range:
    low, high = of(op.operand(0))
    return -high, -low


def _relu(op: Op, of: RangeOf) -> Range:
    low, high = of(op.operand(0))
    return max(low, 0), max(high, 0)


def _sqrt(op: Op, of: RangeOf) -> Range:
    low, high = of(op.operand(0))
    return sqrt(max(low, 0)), inf if high == inf else sqrt(max(high, 0))


def _clip(op: Op, of: RangeOf) -> Range:
    """The limits are operands."""
    low, high = of(op.operand(0))
    limits = [op.inputs[index] if index < len(op.inputs) else None for index in (1, 2)]
    if limits[0] is not None:
        least, most = of(limits[0])
        low, high = max(low, least), max(high, most)
    if limits[1] is not None:
        least, most = of(limits[1])
        low, high = min(low, least), min(high, most)
    return low, high


def _rounded(down: Callable[[float], int], up: Callable[[float], int]) -> _Rule:
    def rule(op: Op, of: RangeOf) -> Range:
        low, high = of(op.operand(0))
        return low if abs(low) == inf else down(low), high if abs(high) == inf else up(high)

    return rule


def _cast(op: Op, of: RangeOf) -> Range:
    """To whole numbers: towards zero.  What does not fit the type is not followed."""
    low, high = of(op.operand(0))
    if op.output.type.dtype is DType.BOOL:
        return 0, 1
    if not op.output.type.dtype.is_integer:
        return low, high
    low, high = (limit if abs(limit) == inf else int(limit) for limit in (low, high))
    half = 1 << (8 * op.output.type.dtype.itemsize - 1)
    return (low, high) if -half <= low and high < half else ANYTHING


def _sum(op: Op, of: RangeOf) -> Range:
    x = op.operand(0)
    count = float(x.type.size // max(op.output.type.size, 1))
    return product_of_ranges(of(x), (count, count))


def _running_sum(op: Op, of: RangeOf) -> Range:
    """One element up to all along the axis are added, or none."""
    low, high = of(op.operand(0))
    count = float(_along_axis(op) + 1)
    least, most = product_of_ranges((low, high), (count, count))
    return min(low, least, 0), max(high, most, 0)


def _within_0_and_1(op: Op, of: RangeOf) -> Range:
    del op, of
    return 0, 1


def _within_1(op: Op, of: RangeOf) -> Range:
    del op, of
    return -1, 1


def _check_size(op: Op, of: RangeOf) -> Range:
    low, high = of(op.operand(0))
    bound = integer(op.attributes, "bound")
    other = op.inputs[1] if len(op.inputs) > 1 else None
    if other is not None:
        least, most = of(other)
        low, high = max(low, least), min(high, most)
    return max(low, 0), min(high, bound) if bound >= 0 else high


def _places_within(op: Op, of: RangeOf) -> Range:
    return 0, max(of(op.operand(1))[1] - 1, integer(op.attributes, "padding"), 0)


_RULES: Final[Mapping[str, _Rule]] = {
    **dict.fromkeys(
        (
            *("Copy", "Expand", "Gather", "GatherElements", "GatherND", "ReduceMax", "ReduceMean"),
            *("ReduceMin", "Reshape", "Slice", "Split", "TopK", "Transpose", "Tile", "Unique"),
        ),
        _of_first,
    ),
    "Abs": _abs,
    "Add": _add,
    "Cast": _cast,
    "Ceil": _rounded(ceil, ceil),
    "CheckSize": _check_size,
    "Clip": _clip,
    "Concat": _of_all,
    "CumSum": _running_sum,
    "Div": _div,
    "Floor": _rounded(floor, floor),
    "HardSigmoid": _within_0_and_1,
    "Max": _max,
    "Min": _min,
    "Mod": _mod,
    "Mul": _mul,
    "Neg": _neg,
    "PlacesWithin": _places_within,
    "ReduceSum": _sum,
    "Relu": _relu,
    "Round": _rounded(floor, ceil),
    "Sigmoid": _within_0_and_1,
    "Sign": _within_1,
    "Softmax": _within_0_and_1,
    "Sqrt": _sqrt,
    "Sub": _sub,
    "Tanh": _within_1,
    "Where": _of_choices,
}


def _along_axis(op: Op) -> int:
    x = op.operand(0).type
    return x.shape[integer(op.attributes, "axis") % max(x.rank, 1)] - 1


def _widest(op: Op) -> int:
    return max(op.operand(0).type.shape, default=1) - 1


def _bound(op: Op) -> int:
    return integer(op.attributes, "bound")


# By op and output: the most that places or sizes among its results are.
_PLACES: Final[Mapping[tuple[str, int], Callable[[Op], int]]] = {
    ("ArgMax", 0): _along_axis,
    ("ArgMin", 0): _along_axis,
    ("NonMaxSuppression", 0): lambda op: max(op.operand(1).type.shape, default=1) - 1,
    ("NonMaxSuppression", 1): _bound,
    ("NonZero", 0): _widest,
    ("NonZero", 1): _bound,
    ("TopK", 1): _along_axis,
    ("Unique", 1): _along_axis,
    ("Unique", 2): _along_axis,
    ("Unique", 3): lambda op: _along_axis(op) + 1,
    ("Unique", 4): _bound,
}
