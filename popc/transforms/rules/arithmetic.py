"""Casts, negations and sums."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from popc.ir import Graph, Op, Tensor
from popc.ir.attributes import integers
from popc.ops.build import build
from popc.transforms.match import is_exactly, produced_by
from popc.transforms.rules.pads import zero_pad
from popc.transforms.rules.rule import LocalRule, sole_nearby
from popc_runtime.format import DType

__all__ = ["RULES"]

# The types that hold every value of a type.
_WIDER: Final = {
    DType.FLOAT16: {DType.FLOAT32, DType.FLOAT64},
    DType.BFLOAT16: {DType.FLOAT32, DType.FLOAT64},
    DType.FLOAT32: {DType.FLOAT64},
    DType.INT8: {DType.INT16, DType.INT32, DType.INT64},
    DType.INT16: {DType.INT32, DType.INT64},
    DType.INT32: {DType.INT64},
    DType.UINT8: {DType.UINT16, DType.UINT32, DType.UINT64},
    DType.UINT16: {DType.UINT32, DType.UINT64},
    DType.UINT32: {DType.UINT64},
}
_PADS: Final = frozenset({"Pad"})


def _join_casts(graph: Graph, op: Op) -> Tensor | None:
    """A detour by way of a wider type."""
    inner = produced_by(op.operand(0), "Cast")
    if inner is None:
        return None
    source, middle, result = inner.operand(0), inner.output.type.dtype, op.output.type.dtype
    start = source.type.dtype
    if middle not in _WIDER.get(start, ()):
        return None
    if result is start:
        return source
    if result not in _WIDER.get(start, ()):  # rounding to a narrower type is left as it is
        return None
    attributes = dict(op.attributes)
    return build(graph, "Cast", [source], attributes, settings=op.settings).output


def _cast_first(graph: Graph, op: Op) -> Tensor | None:
    """Cast the elements before they are repeated."""
    expand = sole_nearby(graph, op, op.operand(0), "Expand")
    if expand is None or expand.operand(0).type.size == op.output.type.size:
        return None
    attributes = dict(op.attributes)
    cast = build(graph, "Cast", [expand.operand(0)], attributes, settings=op.settings).output
    return build(
        graph, "Expand", [cast, *expand.inputs[1:]], dict(expand.attributes), settings=op.settings
    ).output


def _negated(graph: Graph, op: Op) -> Tensor | None:
    dtype = op.output.type.dtype
    if not (dtype.is_float or dtype.is_signed):
        return None
    for side in (0, 1):
        if not is_exactly(op.operand(side), -1):
            continue
        other = op.operand(1 - side)
        if other.type == op.output.type:
            return build(graph, "Neg", [other], settings=op.settings).output
    return None


def _add_of_two(graph: Graph, op: Op) -> Tensor | None:
    if len(op.inputs) != 2 or op.operand(0).type != op.operand(1).type:
        return None
    return build(graph, "Add", op.inputs, settings=op.settings).output


def _joined_pads(graph: Graph, op: Op) -> Tensor | None:
    """Sum of operands that are zero wherever another one is not."""
    if not graph.may_have(_PADS) or not any(produced_by(it, "Pad") for it in op.inputs):
        return None
    pads = [
        pad for pad in (_pad_behind(graph, op, operand) for operand in op.present_inputs) if pad
    ]
    others = [operand for operand in op.present_inputs if operand.producer not in pads]
    if len(pads) < 2 or len(others) > 1:
        return None
    axis = _common_axis(pads)
    if axis is None:
        return None
    pads.sort(key=lambda pad: integers(pad.attributes, "pads")[axis])
    ends = [_interval(pad, axis) for pad in pads]
    if any(before[1] != after[0] for before, after in pairwise(ends)):
        return None
    whole = _concatenated(graph, op, pads, axis)
    if not others:
        return whole
    return build(graph, op.op_type, [whole, *others], settings=op.settings).output


def _pad_behind(graph: Graph, op: Op, tensor: Tensor) -> Op | None:
    """The Pad with zeros behind an operand of the result's type, if it only adds elements."""
    return zero_pad(graph, op, tensor) if tensor.type == op.output.type else None


def _common_axis(pads: list[Op]) -> int | None:
    """The one axis along which all of ``pads`` add something."""
    rank = pads[0].output.type.rank
    axes = {
        index % rank
        for pad in pads
        for index, count in enumerate(integers(pad.attributes, "pads"))
        if count
    }
    return axes.pop() if len(axes) == 1 else None


def _interval(pad: Op, axis: int) -> tuple[int, int]:
    begin = integers(pad.attributes, "pads")[axis]
    return begin, begin + pad.operand(0).type.shape[axis]


def _concatenated(graph: Graph, op: Op, pads: list[Op], axis: int) -> Tensor:
    parts = [pad.operand(0) for pad in pads]
    whole = build(graph, "Concat", parts, {"axis": axis}, settings=op.settings).output
    rank = whole.type.rank
    around = [0] * (2 * rank)
    around[axis] = integers(pads[0].attributes, "pads")[axis]
    around[axis + rank] = integers(pads[-1].attributes, "pads")[axis + rank]
    if not any(around):
        return whole
    attributes = {**pads[0].attributes, "pads": tuple(around)}
    return build(graph, "Pad", [whole], attributes, settings=op.settings).output


def _added_rows(graph: Graph, op: Op) -> Tensor | None:
    """The gradient of an embedding is added to another one row by row."""
    if len(op.inputs) != 2:
        return None
    for side in (0, 1):
        grad = sole_nearby(graph, op, op.operand(side), "GatherGrad")
        dense = op.operand(1 - side)
        if grad is None or grad.attributes["axis"] != 0 or dense.type != op.output.type:
            continue
        rows, places = grad.operand(0), grad.operand(1)
        shape = (*places.type.shape, 1)
        index = build(graph, "Reshape", [places], {"shape": shape}, settings=grad.settings).output
        return build(
            graph, "ScatterND", [dense, index, rows], {"reduction": "add"}, settings=op.settings
        ).output
    return None


RULES: Final = (
    LocalRule(
        "join_casts",
        "default",
        "Removes a Cast to a wider type and back; casts to wider and wider types become one.",
        {"Cast": _join_casts},
        results="equal, but a NaN keeps its bits",
    ),
    LocalRule(
        "expand_casts",
        "default",
        "Casts elements before an Expand repeats them, not behind it.",
        {"Cast": _cast_first},
    ),
    LocalRule(
        "negative_ones",
        "default",
        "Makes Neg of a product with -1.",
        {"Mul": _negated},
        results="equal, but a NaN changes its sign",
        late=True,
    ),
    LocalRule(
        "add_pads",
        "default",
        "Makes a Concat of a sum of operands that zeros surround, each where the others have none.",
        dict.fromkeys(("Add", "Sum"), _joined_pads),
        results="equal, but -0 stays -0",
    ),
    LocalRule(
        "sums_of_two",
        "default",
        "Makes an Add of a Sum of two.",
        {"Sum": _add_of_two},
    ),
    LocalRule(
        "tied_gradients",
        "all",
        "Adds the gradient of an embedding to another gradient of the table row by row, rather "
        "than by way of a table of zeros.",
        dict.fromkeys(("Add", "Sum"), _added_rows),
        results="rows that are read several times add up in another order",
        late=True,
    ),
)
