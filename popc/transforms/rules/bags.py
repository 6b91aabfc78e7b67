"""Bags of looked up rows, which exporters write as a loop over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from popc.ir import AttributeMap, Graph, Op, Tensor
from popc.ir.attributes import integer, integers
from popc.ops.build import build
from popc.transforms.rules.rule import LocalRule, sole_nearby

__all__ = ["RULES"]

_FOLDS: Final = ("ReduceSum", "ReduceMean", "ReduceMax")
_Bag: TypeAlias = tuple[Op, Op]  # the fold of its rows, and their lookup


def _all_bags(graph: Graph, op: Op) -> Tensor | None:
    """Each row of a Concat is the fold of as many rows of one table: they are looked up at once."""
    if integer(op.attributes, "axis") != 0 or len(op.inputs) < 2:
        return None
    bags = [bag for tensor in op.inputs if (bag := _bag_of(graph, op, tensor))]
    if len(bags) < len(op.inputs):
        return None
    fold, lookup = bags[0]
    table = lookup.operand(0)
    alike = ((fold.op_type, table, lookup.operand(1).type),) * len(bags)
    kinds = ((f.op_type, g.operand(0), g.operand(1).type) for f, g in bags)
    if tuple(kinds) != alike:
        return None
    places = _stacked(graph, op, [gather.operand(1) for _, gather in bags])
    rows = build(graph, "Gather", [table, places], {"axis": 0}, settings=op.settings).output
    attributes: AttributeMap = {"axes": (1,), "keepdims": 0}
    return build(graph, fold.op_type, [rows], attributes, settings=op.settings).output


def _bag_of(graph: Graph, op: Op, tensor: Tensor | None) -> _Bag | None:
    """The bag that is one row: [1, *rest]."""
    shaped = sole_nearby(graph, op, tensor, "Reshape", *_FOLDS)
    fold = shaped
    if shaped is not None and shaped.op_type == "Reshape":
        fold = sole_nearby(graph, op, shaped.operand(0), *_FOLDS)
    if shaped is None or fold is None or integers(fold.attributes, "axes") != (0,):
        return None
    lookup = sole_nearby(graph, op, fold.operand(0), "Gather")
    if lookup is None or lookup.operand(1).type.rank != 1 or not lookup.output.type.size:
        return None
    row = lookup.operand(0).type.shape[1:]
    if integer(lookup.attributes, "axis") != 0 or shaped.output.type.shape != (1, *row):
        return None
    return fold, lookup


def _stacked(graph: Graph, op: Op, lists: Sequence[Tensor]) -> Tensor:
    """[bags, rows of a bag]: a part of one list, if they follow each other there."""
    count = lists[0].type.size
    shape = (len(lists), count)
    whole = _neighbours(graph, op, lists)
    if whole is not None:
        return build(graph, "Reshape", [whole], {"shape": shape}, settings=op.settings).output
    rows = [
        build(graph, "Reshape", [places], {"shape": (1, count)}, settings=op.settings).output
        for places in lists
    ]
    return build(graph, "Concat", rows, {"axis": 0}, settings=op.settings).output


def _neighbours(graph: Graph, op: Op, lists: Sequence[Tensor]) -> Tensor | None:
    slices = [tensor.producer for tensor in lists]
    first = slices[0]
    if first is None or first.op_type != "Slice" or first.operand(0).type.rank != 1:
        return None
    source, count = first.operand(0), lists[0].type.size
    (start,) = integers(first.attributes, "starts")
    for number, part in enumerate(slices):
        if part is None or part.op_type != "Slice" or part.operand(0) is not source:
            return None
        at, step = integers(part.attributes, "starts"), integers(part.attributes, "steps")
        if at != (start + number * count,) or step != (1,):
            return None
    size = len(lists) * count
    attributes: AttributeMap = {"starts": (start,), "sizes": (size,), "steps": (1,)}
    return build(graph, "Slice", [source], attributes, settings=op.settings).output


RULES: Final = (
    LocalRule(
        "lookups_of_bags",
        "default",
        "Looks the rows of all bags of a table up at once, where each bag was a lookup and a fold.",
        {"Concat": _all_bags},
        results="sums may add up in another order",
    ),
)
