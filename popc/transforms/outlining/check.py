"""An independent, naive check of calls and what they call."""

from __future__ import annotations

from collections.abc import Iterator

from popc.ir import Graph, Op
from popc.transforms.outlining.sequence import BOUND_TO_PLACE

__all__ = ["find_broken_calls"]


def find_broken_calls(graph: Graph) -> list[str]:
    """The problems with calls, a sentence each; empty if there are none."""
    problems: list[str] = []
    for nested in graph.walk():
        for op in nested.ops:
            if op.op_type == "Call":
                problems += _call_problems(op)
    return problems


def _call_problems(op: Op) -> Iterator[str]:
    callee = op.subgraphs.get("callee")
    if callee is None or len(op.subgraphs) != 1:
        yield f"{op!r} does not call one graph"
        return
    if [tensor and tensor.type for tensor in op.inputs] != [
        input_.type for input_ in callee.inputs
    ]:
        yield f"{op!r} hands over other operands than {callee.name} takes"
    if [tensor.type for tensor in op.outputs] != [output.type for output in callee.outputs]:
        yield f"{op!r} has other results than {callee.name} returns"
    if callee.variables:
        yield f"{callee.name} is called but has variables"
    if op in callee or any(op in nested for nested in callee.walk()):
        yield f"{callee.name} calls itself"
    for inner in callee.ops:
        if inner.op_type in BOUND_TO_PLACE:
            yield f"{callee.name} is called but holds {inner!r}, which stays where it is"
