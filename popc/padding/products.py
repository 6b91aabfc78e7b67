"""Rules for products: of matrices, attention, convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Final, TypeAlias

from popc.ops.windows import window_attributes
from popc.padding.cases import PaddedCase, PaddingError
from popc.padding.lanes import Lane, LaneKind, Lanes, finite_function, is_finite, is_low, is_zero
from popc_runtime.format import DType

__all__ = ["PRODUCTS", "SUMS", "PaddingRule"]

# The facts about each result.  Raises PaddingError if what is filled up would count.
PaddingRule: TypeAlias = Callable[[PaddedCase], "list[Lanes]"]

SUMS: Final = "it adds up positions that are filled up, which are not known to be 0"
_OTHER_AXIS: Final = "another axis than that of samples or positions is filled up"


def _matmul(case: PaddedCase) -> list[Lanes]:
    case.require_same_attributes()
    ranks = len(case.shape(0)), len(case.shape(1))
    if min(ranks) < 2:
        raise PaddingError("nothing is known about products of vectors that are filled up")
    first, second = dict(case.lanes(0)), dict(case.lanes(1))
    pair = first.pop(ranks[0] - 1, None), second.pop(ranks[1] - 2, None)
    if pair != (None, None) and not (any(map(is_zero, pair)) and all(map(is_finite, pair))):
        raise PaddingError(SUMS)
    found: Lanes = {}
    for lanes, own in ((first, ranks[0]), (second, ranks[1])):
        for axis, lane in lanes.items():
            place = axis + case.rank - own
            known = found.get(place, LaneKind.ORDINARY)
            zero = is_zero(lane) or is_zero(known)
            usable = is_finite(lane) and is_finite(known)
            found[place] = LaneKind.BAD if not usable else 0.0 if zero else LaneKind.ORDINARY
    return [found]


def _gemm(case: PaddedCase) -> list[Lanes]:
    """A product of matrices, each perhaps transposed, and what is added."""
    case.require_same_attributes()
    found: Lanes = {}
    pair: list[Lane | None] = []
    for index, (name, kept) in enumerate((("transA", 0), ("transB", 1))):
        turned = bool(case.integer(name))
        lanes = {1 - axis if turned else axis: lane for axis, lane in case.lanes(index).items()}
        pair.append(lanes.pop(1 - kept, None))
        found |= {axis: finite_function(lane) for axis, lane in lanes.items()}
    if pair != [None, None] and not (any(map(is_zero, pair)) and all(map(is_finite, pair))):
        raise PaddingError(SUMS)
    for axis in found:
        if not is_finite(case.seen(2, axis)):
            found[axis] = LaneKind.BAD
    if case.lanes(2) and not found:
        raise PaddingError("what it adds is filled up")
    return [found]


# -- attention -------------------------------------------------------------------------------------

_BATCH, _ROWS, _KEYS = 0, 2, 2  # axes of queries, keys and values
_MASK, _LENGTHS, _SINKS = 3, 4, 5  # operands


def _attention(case: PaddedCase) -> list[Lanes]:
    """Keys that are filled up have no share if a mask, lengths or the order hides them."""
    case.require_same_attributes()
    others = [set(case.lanes(n)) - {_BATCH, _ROWS} for n in range(3)]
    if any(others) or set(case.lanes(_LENGTHS)) - {_BATCH} or case.lanes(_SINKS):
        raise PaddingError(_OTHER_AXIS)
    q, k, v = (case.lanes(n) for n in range(3))
    keys = (k.get(_KEYS), v.get(_KEYS))
    windows = [case.integer(name, -1) for name in ("left_window", "right_window")]
    if _ROWS in q and case.op.optional(_LENGTHS) and (case.integer("causal") or max(windows) >= 0):
        raise PaddingError("what a query may see is counted from its last one, which is filled up")
    if keys != (None, None):
        if not all(map(is_finite, keys)):
            raise PaddingError("its keys or values are perhaps no numbers where they are filled up")
        if not _hidden(case, queries=_ROWS in q):
            raise PaddingError(
                "it looks at keys that are filled up, which no mask, lengths or order hides"
            )
    found: Lanes = {}
    for axis in sorted({*q, *({_BATCH} & ({*k} | {*v}))}):
        used = [
            lanes[axis] for lanes in (q, k, v) if axis in lanes and (axis == _BATCH or lanes is q)
        ]
        fine = all(map(is_finite, used)) and _can_be_seen(case, axis)
        found[axis] = LaneKind.ORDINARY if fine else LaneKind.BAD
    results = [_result(found, heads_last=bool(case.integer("heads_last")))]
    if len(case.op.outputs) > 1:
        results.append(_scores(case, found, padded=keys != (None, None)))
    return results


def _result(found: Lanes, *, heads_last: bool) -> Lanes:
    rows = 1 if heads_last else _ROWS
    return {rows if axis == _ROWS else axis: lane for axis, lane in found.items()}


def _scores(case: PaddedCase, found: Lanes, *, padded: bool) -> Lanes:
    """The second result [batch, heads, queries, keys], before the softmax or behind it."""
    shares = case.integer("scores", -1) == 3
    last: Lane = 0.0 if shares else LaneKind.BAD
    rows = found if shares else dict.fromkeys(found, LaneKind.BAD)
    return {**rows, **({3: last} if padded else {})}


def _mask_lane(case: PaddedCase, axis: int) -> Lane | None:
    """The mask where ``axis`` of the scores is filled up; ``None`` if it does not have the axis."""
    mask = case.op.optional(_MASK)
    if mask is None:
        return None
    return case.lanes(_MASK).get(axis - 4 + len(mask.type.shape))


def _hidden(case: PaddedCase, *, queries: bool) -> bool:
    """True if the keys that are filled up have no share in what was there before."""
    mask, lane = case.op.optional(_MASK), _mask_lane(case, 3)
    if mask is not None and lane is not None:
        masked = is_zero(lane) if mask.type.dtype is DType.BOOL else is_low(lane)
    else:
        masked = False
    if masked or case.op.optional(_LENGTHS) is not None:
        return True
    # As many keys as queries: none looks beyond its own place.
    ahead = 0 if case.integer("causal") else case.integer("right_window", -1)
    grows = case.shape(0)[_ROWS] == case.shape(1)[_KEYS]
    return queries and grows and ahead >= 0 and ahead + case.integer("offset") <= 0


def _can_be_seen(case: PaddedCase, axis: int) -> bool:
    """False if the mask might hide everything from what is filled up along ``axis``."""
    mask, lane = case.op.optional(_MASK), _mask_lane(case, axis)
    if mask is None or lane is None or mask.type.dtype is DType.BOOL:
        return True
    return lane not in (LaneKind.BAD, inf, -inf)


# -- convolutions ----------------------------------------------------------------------------------


def _conv(case: PaddedCase) -> list[Lanes]:
    """Windows that reach beyond the end find zeros there, as they did; or none does."""
    case.require_same_attributes()
    if any(case.lanes(n) for n in range(1, len(case.op.inputs))) or 1 in case.lanes(0):
        raise PaddingError(_OTHER_AXIS)
    kernel = case.shape(1)[2:]
    window = window_attributes(case.op.attributes, len(kernel))
    found: Lanes = {}
    for axis, lane in case.lanes(0).items():
        found[axis] = finite_function(lane)
        if axis == _BATCH:
            continue
        place = axis - 2
        more = window.extents(kernel)[place] - 1 - window.begins[place] - window.ends[place]
        if window.strides[place] != 1 or more:
            raise PaddingError(
                "it makes another number of positions: its stride is not 1, or its "
                "padding not that of its kernel"
            )
        if window.ends[place] > 0 and not is_zero(lane):
            raise PaddingError(
                "it reads positions that are filled up, which are not known to be 0: "
                "multiply by the mask in front of it"
            )
        if window.ends[place] < 0:
            raise PaddingError("it leaves out positions at the end")
    return [found]


PRODUCTS: Final[Mapping[str, PaddingRule]] = {
    "Attention": _attention,
    "Conv": _conv,
    "Gemm": _gemm,
    "MatMul": _matmul,
}
