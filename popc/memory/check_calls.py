"""For the checker: calls, what they hand over, and how what they call uses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from popc.ir import Graph, Op, Tensor, TensorKind, TensorType
from popc.memory.plan import ALIGNMENT, MemoryPlace, MemoryPlan
from popc.ops.control import called_graphs, own_graphs
from popc_runtime.format import DType, Region

__all__ = ["check_calls", "parameter_sizes", "with_frames"]


def with_frames(graph: Graph, plan: MemoryPlan) -> tuple[MemoryPlan, Mapping[Op, Tensor]]:
    """``plan`` with what calls hand over to work in as tensors, and these tensors."""
    frames: dict[Op, Tensor] = {}
    for part in graph.walk():
        for op in part.ops:
            if op.op_type == "Call":
                type_ = TensorType(DType.UINT8, (plan.frame_bytes[op.subgraphs["callee"]],))
                frames[op] = Tensor(f"frame of {op!r}", type_, TensorKind.ACTIVATION)
    places = {tensor: plan.frames[op] for op, tensor in frames.items()}
    return replace(plan, placements={**plan.placements, **places}), frames


def parameter_sizes(graph: Graph, plan: MemoryPlan) -> dict[tuple[Region, int], int]:
    """The bytes of all memory that ``graph``, which is called, may use, by `MemoryPlace.memory`."""
    sizes = [tensor.type.nbytes for tensor in (*graph.inputs, *graph.outputs)]
    sizes.append(plan.frame_bytes[graph])
    parameters = {(Region.PARAMETER, number): size for number, size in enumerate(sizes)}
    return {**parameters, (Region.CONSTANT, -1): plan.constant_bytes}


def check_calls(graph: Graph, plan: MemoryPlan) -> Iterator[str]:
    """Operands are as the callee takes them, and lie there as a whole."""
    for callee in called_graphs(graph):
        if callee.variables:
            yield f"{callee.name} is called but has variables"
        for number, tensor in enumerate((*callee.inputs, *callee.outputs)):
            if plan.placements[tensor] != MemoryPlace(Region.PARAMETER, 0, None, number):
                yield f"{tensor!r} is not parameter {number} of {callee.name}"
    arena = {(Region.ARENA, -1): plan.arena_bytes}
    for root in (graph, *called_graphs(graph)):
        sizes = arena if root is graph else parameter_sizes(root, plan)
        calls = [op for part in own_graphs(root) for op in part.ops if op.op_type == "Call"]
        for op in calls:
            yield from _check_call(op, plan, sizes)


def _check_call(op: Op, plan: MemoryPlan, sizes: Mapping[tuple[Region, int], int]) -> Iterator[str]:
    callee, frame = op.subgraphs["callee"], plan.frames[op]
    end = frame.offset + plan.frame_bytes[callee]
    if frame.offset < 0 or end > sizes.get(frame.memory, 0) or frame.strides is not None:
        yield f"{op!r} hands over memory to work in at {frame.offset}..{end} of {frame.memory}"
    if frame.offset % ALIGNMENT:
        yield f"{op!r} hands over memory to work in that is not aligned"
    inside = [tensor.type for tensor in (*callee.inputs, *callee.outputs)]
    if None in op.inputs or inside != [value.type for value in (*op.present_inputs, *op.outputs)]:
        yield f"the operands or results of {op!r} are not those of {callee.name}"
    for tensor in op.present_inputs:
        if plan.placements[tensor].strides is not None:
            yield f"{op!r} hands over {tensor!r}, which is strided"
