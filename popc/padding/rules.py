"""Rules for ops: the added positions of their results, and whether those of operands count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, prod
from typing import Final, TypeAlias

import numpy as np

from popc.ir.attributes import integers
from popc.ops import OPS
from popc.padding.cases import PaddedCase, PaddingError
from popc.padding.lanes import (
    Lane,
    LaneKind,
    Lanes,
    computed,
    finite_function,
    is_finite,
    is_low,
    is_zero,
)

__all__ = ["rule_of"]

# What is known of each result.  Raises PaddingError if what is filled up would count.
PaddingRule: TypeAlias = Callable[[PaddedCase], "list[Lanes]"]

_SUMS: Final = "it adds up positions that are filled up, which are not known to be 0"


def rule_of(op_type: str) -> PaddingRule:
    """The rule for an op.

    Raises:
        PaddingError: there is none.
    """
    rule = _RULES.get(op_type)
    if rule is not None:
        return rule
    spec = OPS.get(op_type)
    if spec is not None and spec.elementwise:
        return _elementwise
    raise PaddingError("nothing is known about how it treats positions that are filled up")


def _elementwise(case: PaddedCase) -> list[Lanes]:
    case.require_same_attributes()
    operands = range(len(case.op.inputs))
    axes: set[int] = set()
    for index in operands:
        lanes = case.lanes(index)
        axes |= {axis + case.rank - len(case.shape(index)) for axis in lanes} if lanes else set()
    found: Lanes = {}
    for axis in sorted(axes):
        found[axis] = computed(case.op, [case.seen(index, axis) for index in operands])
    return [dict(found) for _ in case.op.outputs]


# -- shapes ----------------------------------------------------------------------------------------


def _reshape(case: PaddedCase) -> list[Lanes]:
    """An axis stays one if as many elements lie in front of it as did."""
    found: Lanes = {}
    for axis, lane in case.lanes(0).items():
        large = _place(case.shape(0), case.op.output.type.shape, axis)
        small = _place(case.small.operand(0).type.shape, case.small.output.type.shape, axis)
        if large is None or large != small:
            raise PaddingError("it puts positions together with others")
        found[large] = lane
    return [found]


def _place(before: Sequence[int], after: Sequence[int], axis: int) -> int | None:
    """The axis that ``axis`` becomes, if it is still one."""
    outer = prod(before[:axis])
    return next(
        (
            place
            for place, size in enumerate(after)
            if size == before[axis] and prod(after[:place]) == outer
        ),
        None,
    )


def _transpose(case: PaddedCase) -> list[Lanes]:
    case.require_same_attributes()
    order = integers(case.op.attributes, "perm")
    return [{order.index(axis): lane for axis, lane in case.lanes(0).items()}]


def _slice(case: PaddedCase) -> list[Lanes]:
    large, small = case.op.attributes, case.small.attributes
    starts, steps = integers(large, "starts"), integers(large, "steps")
    if (starts, steps) != (integers(small, "starts"), integers(small, "steps")):
        raise PaddingError("it reads from the end")
    sizes = integers(large, "sizes")
    found: Lanes = {}
    for axis, lane in case.lanes(0).items():
        if (starts[axis], steps[axis], sizes[axis]) == (0, 1, case.shape(0)[axis]):
            found[axis] = lane
        elif (starts[axis], sizes[axis]) != (0, 1):
            raise PaddingError("it reads positions that shorter inputs do not have")
    return [found]


def _expand(case: PaddedCase) -> list[Lanes]:
    small = case.small.output.type.shape
    large = case.op.output.type.shape
    return [{n: case.seen(0, n) for n, size in enumerate(large) if size != small[n]}]


def _concat(case: PaddedCase) -> list[Lanes]:
    case.require_same_attributes()
    found: Lanes = {}
    for index in range(len(case.op.inputs)):
        for axis, lane in case.lanes(index).items():
            if axis == case.axis():
                raise PaddingError("it puts something behind positions that are filled up")
            known = found.setdefault(axis, lane)
            if known != lane:
                both = is_finite(known) and is_finite(lane)
                found[axis] = LaneKind.ORDINARY if both else LaneKind.BAD
    return [found]


def _split(case: PaddedCase) -> list[Lanes]:
    case.require_same_attributes()
    if case.axis() in case.lanes(0):
        raise PaddingError("it parts positions that are filled up")
    return [dict(case.lanes(0)) for _ in case.op.outputs]


def _trilu(case: PaddedCase) -> list[Lanes]:
    case.require_same_attributes()
    lanes = case.lanes(0).items()
    return [{axis: 0.0 if is_zero(lane) else finite_function(lane) for axis, lane in lanes}]


# -- what reads along axes -------------------------------------------------------------------------


def _gather(case: PaddedCase) -> list[Lanes]:
    case.require_same_attributes()
    axis, index = case.axis(), case.op.operand(1)
    data = case.lanes(0)
    if axis in data and (index.data is None or bool(np.any(index.data))):
        raise PaddingError("it reads positions that shorter inputs do not have")
    more = len(index.type.shape) - 1
    found: Lanes = {
        n if n < axis else n + more: finite_function(lane) for n, lane in data.items() if n != axis
    }
    found |= {axis + n: finite_function(lane) for n, lane in case.lanes(1).items()}
    return [found]


def _softmax(case: PaddedCase) -> list[Lanes]:
    case.require_same_attributes()
    axis, lanes = case.axis(), case.lanes(0)
    if axis in lanes and not is_low(lanes[axis]):
        raise PaddingError("it reads positions that are filled up, which no mask leaves out")
    found: Lanes = {}
    for other, lane in lanes.items():
        is_number = lane not in (LaneKind.BAD, -inf)
        found[other] = LaneKind.ORDINARY if is_number else LaneKind.BAD
    return [found | ({axis: 0.0} if axis in lanes else {})]


def _matmul(case: PaddedCase) -> list[Lanes]:
    case.require_same_attributes()
    ranks = len(case.shape(0)), len(case.shape(1))
    if min(ranks) < 2:
        raise PaddingError("nothing is known about products of vectors that are filled up")
    first, second = dict(case.lanes(0)), dict(case.lanes(1))
    pair = first.pop(ranks[0] - 1, None), second.pop(ranks[1] - 2, None)
    if pair != (None, None) and not (any(map(is_zero, pair)) and all(map(is_finite, pair))):
        raise PaddingError(_SUMS)
    found: Lanes = {}
    for lanes, own in ((first, ranks[0]), (second, ranks[1])):
        for axis, lane in lanes.items():
            place = axis + case.rank - own
            known = found.get(place, LaneKind.ORDINARY)
            zero = is_zero(lane) or is_zero(known)
            usable = is_finite(lane) and is_finite(known)
            found[place] = LaneKind.BAD if not usable else 0.0 if zero else LaneKind.ORDINARY
    return [found]


def _reduction(neutral: Callable[[Lane], bool], why: str) -> PaddingRule:
    """A reduction for which elements that are ``neutral`` do not count."""

    def rule(case: PaddedCase) -> list[Lanes]:
        case.require_same_attributes()
        axes, lanes = case.axes(), case.lanes(0)
        if any(axis in lanes and not neutral(lanes[axis]) for axis in axes):
            raise PaddingError(why)
        kept = bool(case.integer("keepdims", 1))
        found: Lanes = {}
        for axis, lane in lanes.items():
            if axis not in axes:
                place = axis if kept else axis - sum(each < axis for each in axes)
                found[place] = 0.0 if is_zero(lane) else finite_function(lane)
        return [found]

    return rule


def _never(lane: Lane) -> bool:
    del lane
    return False


def _normalised(case: PaddedCase) -> list[Lanes]:
    """Normalise along the last axes, from ``axis`` on."""
    case.require_same_attributes()
    if any(axis >= case.axis() for axis in case.lanes(0)):
        raise PaddingError("it normalises over positions that are filled up")
    lanes = {axis: finite_function(lane) for axis, lane in case.lanes(0).items()}
    return [dict(lanes) for _ in case.op.outputs]


def _running(case: PaddedCase) -> list[Lanes]:
    """Sums of all that comes before."""
    case.require_same_attributes()
    axis, lanes = case.axis(), case.lanes(0)
    if case.integer("reverse") and axis in lanes and not is_zero(lanes[axis]):
        raise PaddingError(_SUMS)
    return [{n: finite_function(lane) for n, lane in lanes.items()}]


_LENGTHS: Final = 4  # the operand of recurrent layers that says how long each sample is


def _recurrent(case: PaddedCase) -> list[Lanes]:
    """Steps behind the length of a sample are not made, and have zeros as results."""
    case.require_same_attributes()
    if case.op.optional(_LENGTHS) is None:
        raise PaddingError("it takes steps that are filled up: it has no input for lengths")
    if set(case.lanes(0)) - {0} or any(case.lanes(n) for n in range(1, len(case.op.inputs))):
        raise PaddingError("another axis than that of steps is filled up")
    return [{0: 0.0} if n == 0 else {} for n, _ in enumerate(case.op.outputs)]


_RULES: Final[Mapping[str, PaddingRule]] = {
    "Concat": _concat,
    "CumSum": _running,
    "Expand": _expand,
    "GRU": _recurrent,
    "Gather": _gather,
    "LSTM": _recurrent,
    "LayerNormalization": _normalised,
    "MatMul": _matmul,
    "RMSNormalization": _normalised,
    "RNN": _recurrent,
    "ReduceL1": _reduction(is_zero, _SUMS),
    "ReduceL2": _reduction(is_zero, _SUMS),
    "ReduceMax": _reduction(is_low, "it looks at positions that are filled up"),
    "ReduceMean": _reduction(_never, "it divides by the number of positions"),
    "ReduceMin": _reduction(_never, "it looks at positions that are filled up"),
    "ReduceSum": _reduction(is_zero, _SUMS),
    "ReduceSumSquare": _reduction(is_zero, _SUMS),
    "Reshape": _reshape,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Transpose": _transpose,
    "Trilu": _trilu,
}
