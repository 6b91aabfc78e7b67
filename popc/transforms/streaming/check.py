"""A naive check of graphs in which something lies in streaming memory."""

from __future__ import annotations

from popc.ir import Graph, Op, Tensor
from popc.ir.attributes import integer
from popc.ops.streaming import READ_ROWS, UPDATE_ROWS, fetches, find_remote

__all__ = ["find_misplaced"]


def find_misplaced(graph: Graph) -> list[str]:
    """The problems, a sentence each."""
    remote = find_remote(graph)
    return [
        problem for part in graph.walk() for op in part.ops for problem in _problems(op, remote)
    ]


def _problems(op: Op, remote: frozenset[Tensor]) -> list[str]:
    read = [tensor for tensor in op.present_inputs if tensor in remote]
    if op.op_type == "RemoteLoad":
        wrong = [
            operand
            for operand in op.present_inputs
            if operand not in remote and not operand.is_constant
        ]
        return [f"{op!r} fetches {tensor!r}, which is on the chip" for tensor in wrong]
    if op.op_type in (READ_ROWS, UPDATE_ROWS):
        read = [tensor for tensor in read if not fetches(op, tensor)]
    if op.op_type == "CopyVarUpdate":
        mixed = len(read) == 1
        return [f"{op!r} copies between chip and streaming memory"] if mixed else []
    if op.op_type == "Loop":
        states = integer(op.attributes, "states")
        pairs = zip(op.inputs[2 : 2 + states], op.subgraphs["body"].outputs[1:], strict=False)
        return [
            f"{op!r}: a state begins as {first!r} and goes on as {later!r}"
            for first, later in pairs
            if (first in remote) != (later in remote)
        ]
    if op.subgraphs or not read:
        return []
    return [f"{op!r} reads {read[0]!r}, which lies in streaming memory"]
