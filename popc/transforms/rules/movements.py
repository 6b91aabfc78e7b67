"""Ops that move data: those that follow each other become one."""

from __future__ import annotations

from typing import Final

from popc.ir import Graph, Op, Tensor
from popc.ir.attributes import integers
from popc.ops.build import build
from popc.transforms.match import produced_by
from popc.transforms.rules.rule import LocalRule

__all__ = ["RULES"]


def _join_reshapes(graph: Graph, op: Op) -> Tensor | None:
    inner = produced_by(op.operand(0), "Reshape")
    if inner is None:
        return None
    return _rebuilt(graph, op, inner, "Reshape", {"shape": op.output.type.shape})


def _join_transposes(graph: Graph, op: Op) -> Tensor | None:
    inner = produced_by(op.operand(0), "Transpose")
    if inner is None:
        return None
    joined = tuple(
        integers(inner.attributes, "perm")[axis] for axis in integers(op.attributes, "perm")
    )
    return _rebuilt(graph, op, inner, "Transpose", {"perm": joined})


def _trivial_transpose(graph: Graph, op: Op) -> Tensor | None:
    """Nothing moves if only axes of size 1 change places."""
    perm = integers(op.attributes, "perm")
    if perm == tuple(range(len(perm))):
        return op.operand(0)
    moved = [axis for axis in perm if op.operand(0).type.shape[axis] != 1]
    if moved != sorted(moved):
        return None
    return _rebuilt(graph, op, op, "Reshape", {"shape": op.output.type.shape})


def _join_slices(graph: Graph, op: Op) -> Tensor | None:
    inner = produced_by(op.operand(0), "Slice")
    if inner is None or op.output.type.size == 0 or _is_subsample_of(op, inner):
        return None
    first, second = _windows(inner), _windows(op)
    joined = [one[two.start : None : two.step][: len(two)] for one, two in
              zip(first, second, strict=True)]  # fmt: skip
    attributes = {
        "starts": tuple(window.start for window in joined),
        "sizes": tuple(len(window) for window in joined),
        "steps": tuple(window.step for window in joined),
    }
    return _rebuilt(graph, op, inner, "Slice", attributes)


def _windows(op: Op) -> list[range]:
    fields = (integers(op.attributes, key) for key in ("starts", "sizes", "steps"))
    return [
        range(start, start + size * step, step) for start, size, step in zip(*fields, strict=True)
    ]


def _is_subsample_of(op: Op, inner: Op) -> bool:
    """True if `_split_slice` has made the two of one."""
    return (
        all(step == 1 for step in integers(inner.attributes, "steps"))
        and any(step != 1 for step in integers(op.attributes, "steps"))
        and _span(op) == [(0, dim) for dim in inner.output.type.shape]
    )


def _span(op: Op) -> list[tuple[int, int]]:
    """For each axis, the first element that is read and how many there are up to the last."""
    return [(min(window), max(window) - min(window) + 1) for window in _windows(op)]


def _split_slice(graph: Graph, op: Op) -> Tensor | None:
    if all(step == 1 for step in integers(op.attributes, "steps")) or op.output.type.size == 0:
        return None
    span = _span(op)
    if span == [(0, dim) for dim in op.operand(0).type.shape]:
        return None
    starts, sizes = zip(*span, strict=True)
    attributes = {"starts": starts, "sizes": sizes, "steps": (1,) * len(span)}
    part = _rebuilt(graph, op, op, "Slice", attributes)
    within = tuple(
        start - low for start, low in zip(integers(op.attributes, "starts"), starts, strict=True)
    )
    rest = {**op.attributes, "starts": within}
    return build(graph, "Slice", [part], rest, settings=op.settings).output


def _rebuilt(
    graph: Graph, op: Op, inner: Op, op_type: str, attributes: dict[str, tuple[int, ...]]
) -> Tensor:
    """``op_type`` over the operand of ``inner``, in place of ``op``."""
    return build(graph, op_type, [inner.operand(0)], {**attributes}, settings=op.settings).output


RULES: Final = (
    LocalRule(
        "join_reshapes",
        "default",
        "Makes one Reshape of two that follow each other.",
        {"Reshape": _join_reshapes},
    ),
    LocalRule(
        "trivial_transposes",
        "default",
        "Removes a Transpose that moves nothing; makes a Reshape of one that only moves axes of "
        "size 1.",
        {"Transpose": _trivial_transpose},
    ),
    LocalRule(
        "join_transposes",
        "default",
        "Makes one Transpose of two that follow each other.",
        {"Transpose": _join_transposes},
    ),
    LocalRule(
        "join_slices",
        "default",
        "Makes one Slice of two that follow each other; two reversals disappear.",
        {"Slice": _join_slices},
    ),
    LocalRule(
        "split_slices",
        "all",
        "Cuts a Slice with steps into one without, and one that takes every n-th element of it.",
        {"Slice": _split_slice},
    ),
)
