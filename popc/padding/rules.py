"""Rules for ops: the added positions of their results, and whether those of operands count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, prod
from typing import Final

import numpy as np

from popc.ir.attributes import integers
from popc.ops import OPS
from popc.padding.cases import PLAIN, Fold, PaddedCase, PaddingError
from popc.padding.lanes import (
    LOW,
    Lane,
    LaneKind,
    Lanes,
    computed,
    finite_function,
    is_finite,
    is_low,
    is_zero,
)
from popc.padding.products import PRODUCTS, SUMS, PaddingRule

__all__ = ["fold_of_results", "rule_of"]


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
    """An axis stays one, or lies in one with its neighbours: as many elements are before it."""
    return [{_place(case, axis)[0]: lane for axis, lane in case.lanes(0).items()}]


def _place(case: PaddedCase, axis: int) -> tuple[int, Fold]:
    """The axis of the result of a Reshape that holds ``axis``, and how.

    Raises:
        PaddingError: there is none, or not the same one for both sizes.
    """
    outer, _ = case.fold(case.op.operand(0))
    found: list[tuple[int, Fold]] = []
    for op, size in zip((case.small, case.op), case.sizes, strict=True):
        before, after = op.operand(0).type.shape, op.output.type.shape
        blocks = prod(before[:axis]) * outer
        found += _holders(after, blocks, size)[:1]
    if len(found) != len(case.sizes) or found[0] != found[1]:
        raise PaddingError("it puts positions together with others")
    return found[0]


def _holders(shape: Sequence[int], blocks: int, size: int) -> list[tuple[int, Fold]]:
    """The axes that can hold an axis of ``size`` with as many ``blocks`` of it, and how."""
    found: list[tuple[int, Fold]] = []
    for axis, length in enumerate(shape):
        before = prod(shape[:axis])
        outer, rest = divmod(blocks, max(before, 1))
        if rest or not outer or not length or length % (outer * size):
            continue
        found.append((axis, (outer, length // (outer * size))))
    return found


# What treats all places along an axis alike, whatever lies there.
_ALIKE: Final = frozenset(
    (
        *("Gather", "Gemm", "LayerNormalization", "MatMul", "RMSNormalization", "Reshape"),
        *("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"),
        *("ReduceSum", "ReduceSumSquare", "Softmax", "Transpose"),
    )
)


def fold_of_results(case: PaddedCase) -> Fold:
    """The way in which the axis that is filled up lies in the results of an op.

    Raises:
        PaddingError: it differs among the operands, or the op does not treat all places alike.
    """
    folds = {case.fold(tensor) for tensor in case.op.present_inputs if case.known(tensor)}
    if case.op.op_type == "Reshape":
        folds = {_place(case, axis)[1] for axis in case.lanes(0)}
    if folds <= {PLAIN}:
        return PLAIN
    spec = OPS.get(case.op.op_type)
    alike = case.op.op_type in _ALIKE or (spec is not None and spec.elementwise)
    if len(folds) > 1 or not alike:
        raise PaddingError("it works along an axis that holds positions of several samples")
    return next(iter(folds))


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


_LOOKS: Final = "it looks at positions that are filled up, which are not known to be"


def _is_high(lane: Lane) -> bool:
    return isinstance(lane, float) and lane >= -LOW


def _is_one(lane: Lane) -> bool:
    return lane == 1.0


def _never(lane: Lane) -> bool:
    del lane
    return False


def _place_of(neutral: Callable[[Lane], bool], why: str) -> PaddingRule:
    """The place of an extremum, which elements that are ``neutral`` are not."""

    def rule(case: PaddedCase) -> list[Lanes]:
        case.require_same_attributes()
        chosen, kept = case.axis(), bool(case.integer("keepdims", 1))
        lanes = dict(case.lanes(0))
        if chosen in lanes and not neutral(lanes.pop(chosen)):
            raise PaddingError(why)
        places = [axis if kept or axis < chosen else axis - 1 for axis in lanes]
        return [dict.fromkeys(places, LaneKind.ORDINARY)]

    return rule


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
        raise PaddingError(SUMS)
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
    **PRODUCTS,
    "ArgMax": _place_of(is_low, f"{_LOOKS} low (such as -10000), as a mask makes them"),
    "ArgMin": _place_of(_is_high, f"{_LOOKS} high (such as 10000), as a mask makes them"),
    "Concat": _concat,
    "CumSum": _running,
    "DynamicQuantizeLSTM": _recurrent,
    "Expand": _expand,
    "GRU": _recurrent,
    "Gather": _gather,
    "LSTM": _recurrent,
    "LayerNormalization": _normalised,
    "RMSNormalization": _normalised,
    "RNN": _recurrent,
    "ReduceL1": _reduction(is_zero, SUMS),
    "ReduceL2": _reduction(is_zero, SUMS),
    "ReduceMax": _reduction(is_low, f"{_LOOKS} low (such as -10000), as a mask makes them"),
    "ReduceMean": _reduction(_never, "it divides by the number of positions: use a sum and mask"),
    "ReduceMin": _reduction(_is_high, f"{_LOOKS} high (such as 10000), as a mask makes them"),
    "ReduceProd": _reduction(_is_one, f"{_LOOKS} 1"),
    "ReduceSum": _reduction(is_zero, SUMS),
    "ReduceSumSquare": _reduction(is_zero, SUMS),
    "Reshape": _reshape,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Transpose": _transpose,
    "Trilu": _trilu,
}
