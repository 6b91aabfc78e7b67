"""For the checker: what lies in streaming memory, and that nothing but transfers touches it."""

from __future__ import annotations

from collections.abc import Iterator

from popc.ir import Graph, Op, Tensor
from popc.ir.attributes import integer
from popc.memory.plan import MemoryPlan
from popc_runtime.format import Region

__all__ = ["check_remote"]


def check_remote(graph: Graph, plan: MemoryPlan) -> Iterator[str]:
    """One sentence per problem."""
    for part in graph.walk():
        for tensor in part.tensors.values():
            if tensor.off_chip and not _is_remote(tensor, plan):
                yield f"{tensor!r} is kept off chip, but does not lie in streaming memory"
            if _is_remote(tensor, plan) and not _may_be_remote(tensor, part, graph):
                yield f"{tensor!r} lies in streaming memory, but no RemoteStore has put it there"
        for op in part.ops:
            yield from _check_op(op, plan)


def _is_remote(tensor: Tensor, plan: MemoryPlan) -> bool:
    return plan.placements[tensor].region is Region.REMOTE


def _may_be_remote(tensor: Tensor, part: Graph, graph: Graph) -> bool:
    """A value from outside is another name of what lies there; that is checked at the op."""
    op = tensor.producer
    if op is None:
        return tensor.off_chip or (part is not graph and tensor in part.inputs)
    return op.op_type in ("RemoteStore", "RemoteScatterAdd") or bool(op.subgraphs)


def _check_op(op: Op, plan: MemoryPlan) -> Iterator[str]:
    remote = [tensor for tensor in op.present_inputs if _is_remote(tensor, plan)]
    if op.op_type == "RemoteLoad":
        yield from (
            f"{op!r} fetches {tensor!r}, which lies on the chip"
            for tensor in op.present_inputs
            if tensor not in remote and plan.placements[tensor].region is not Region.CONSTANT
        )
    elif op.op_type == "CopyVarUpdate":
        if len(remote) == 1:
            yield f"{op!r} copies between chip and streaming memory"
    elif op.op_type == "Loop":
        yield from _check_states(op, plan)
    elif op.op_type in ("RemoteGather", "RemoteScatterAdd"):
        yield from (
            f"{op!r} reads {tensor!r} as a whole, which lies in streaming memory"
            for tensor in remote
            if tensor is not op.operand(0) or tensor in op.inputs[1:]
        )
    elif remote and not op.subgraphs:
        yield f"{op!r} reads {remote[0]!r}, which lies in streaming memory"
    if op.op_type in ("RemoteStore", "RemoteScatterAdd"):
        yield from (
            f"{op!r} leaves {tensor!r} on the chip"
            for tensor in op.outputs
            if not _is_remote(tensor, plan)
        )


def _check_states(op: Op, plan: MemoryPlan) -> Iterator[str]:
    """A state lies in streaming memory before the first iteration and after each, or never."""
    states = integer(op.attributes, "states")
    initial, results = op.inputs[2 : 2 + states], op.subgraphs["body"].outputs[1 : 1 + states]
    for first, result, state in zip(initial, results, op.outputs, strict=False):
        assert first is not None, f"{op!r}: a state without initial value"
        if len({_is_remote(tensor, plan) for tensor in (first, result, state)}) > 1:
            yield f"{op!r}: the state {state!r} moves between chip and streaming memory"
