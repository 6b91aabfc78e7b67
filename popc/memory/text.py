"""Memory plans as text: one tensor a line, the same for equal plans."""

from __future__ import annotations

from collections.abc import Iterator

from popc.ir import Op, Tensor
from popc.memory.plan import MemoryPlace, MemoryPlan

__all__ = ["format_plan"]


def format_plan(plan: MemoryPlan) -> str:
    """Sizes, then every tensor, graph by graph, with its place and how it came by it."""
    lines = [
        f"arena {plan.arena_bytes} bytes, in use at one time {plan.peak_bytes}",
        f"arena {plan.naive_bytes} bytes without sharing",
        f"state {plan.state_bytes} bytes",
        f"constant {plan.constant_bytes} bytes in {len(plan.constants)} arrays",
    ]
    if plan.remote_bytes:
        lines.append(f"remote {plan.remote_bytes} bytes")
    lines += [
        f"  {tensor!r} {_place(placement)}{''.join(_notes(plan, tensor))}"
        for tensor, placement in plan.placements.items()
    ]
    return "\n".join(lines) + "\n"


def _place(placement: MemoryPlace) -> str:
    place = f"{placement.region.name.lower()}+{placement.offset}"
    if placement.strides is None:
        return place
    return f"{place} strides [{','.join(map(str, placement.strides))}]"


def _notes(plan: MemoryPlan, tensor: Tensor) -> Iterator[str]:
    op = tensor.producer
    if op is None:
        return
    if op in plan.views:
        yield f", view of {_operand(op, 0)}"
    if op in plan.inplace and tensor is op.output:
        yield f", over {_operand(op, plan.inplace[op])}"
    if op in plan.joined:
        operands = (_operand(op, index) for index in sorted(plan.joined[op]))
        yield f", joined {', '.join(operands)}"


def _operand(op: Op, index: int) -> str:
    return f"%{op.operand(index).name}"
