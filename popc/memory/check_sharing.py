"""For the checker: no two values share memory at the same time unless the plan may say so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from popc.ir import Op, Tensor, TensorKind
from popc.ir.attributes import integer
from popc.memory.check_places import addresses, byte_range
from popc.memory.plan import MemoryPlace, MemoryPlan
from popc.memory.replay import Replay
from popc.ops import OPS
from popc_runtime.format import Region

__all__ = ["check_sharing"]


def check_sharing(program: Replay, plan: MemoryPlan) -> Iterator[str]:
    """Regions, overlaps, and the reasons that the plan gives for them."""
    yield from _check_regions(program, plan)
    for op in filter(program.writer.__contains__, plan.inplace):
        yield from _check_inplace(op, plan)
    for op in filter(program.writer.__contains__, plan.joined):
        yield from _check_joined(op, plan)
    for earlier, later in _overlapping_pairs(program, plan):
        if not _is_explained(earlier, later, program, plan):
            yield f"{earlier!r} and {later!r} share memory while both are needed"


def _check_regions(program: Replay, plan: MemoryPlan) -> Iterator[str]:
    """Only the state region keeps values from load time, and only load time writes to it.

    Streaming memory keeps them too, for as long as they are needed.
    """
    for tensor, life in program.lives.items():
        region = plan.placements[tensor].region
        outlives = life.written < program.loaded <= life.read
        if tensor.type.size and outlives and region not in (Region.STATE, Region.REMOTE):
            yield f"{tensor!r} outlives load time but does not lie in the state region"
        if (
            life.written >= program.loaded
            and region not in (program.region, Region.REMOTE)
            and not any(
                kept.kind is TensorKind.VARIABLE for kept in _kept_in(tensor, program, plan)
            )
        ):
            yield f"{tensor!r} is written on every run but does not lie in the arena"
        if region is Region.CONSTANT:
            yield f"{tensor!r} is computed but lies in the constant region"


def _check_inplace(op: Op, plan: MemoryPlan) -> Iterator[str]:
    """The operand may be overwritten, and whatever else lies there is read in step with it."""
    index = plan.inplace[op]
    spec = OPS[op.op_type]
    place = plan.placements[op.output]
    if index not in spec.inplace or plan.placements[op.operand(index)] != place:
        yield f"{op!r} cannot take over its operand {index}"
    if any(number == index and wish <= 0 for number, wish in op.settings.inplace):
        yield f"{op!r} overwrites operand {index}, which its settings forbid"
    low, high = byte_range(op.output, place)
    for other, operand in enumerate(op.inputs):
        if operand is None or plan.placements[operand].memory != place.memory:
            continue
        start, end = byte_range(operand, plan.placements[operand])
        in_step = other in spec.inplace and plan.placements[operand] == place
        if start < high and low < end and not (in_step and operand.type == op.output.type):
            yield f"{op!r} overwrites its operand {other} out of step"


def _check_joined(op: Op, plan: MemoryPlan) -> Iterator[str]:
    """Each joined operand lies where the output wants it."""
    place, axis = plan.placements[op.output], integer(op.attributes, "axis")
    offset = place.offset
    for index, operand in enumerate(op.inputs):
        assert operand is not None, f"{op!r} has an absent operand"
        wanted = replace(place, offset=offset)
        if index in plan.joined[op] and plan.placements[operand] != wanted:
            yield f"operand {index} of {op!r} is not where the output wants it"
        step = operand.type.shape[axis] * place.strides[axis] if place.strides else 0
        offset += step or operand.type.nbytes
    if not place.strides and any(dim != 1 for dim in op.output.type.shape[:axis]):
        yield f"{op!r} interleaves its operands, so that they cannot be joined"


def _overlapping_pairs(program: Replay, plan: MemoryPlan) -> Iterator[tuple[Tensor, Tensor]]:
    """Origins that share bytes while both live; the one written first comes first."""
    origins = sorted(
        (tensor for tensor in program.lives if tensor.type.nbytes),
        key=lambda tensor: program.lives[tensor].written,
    )
    ranges = [byte_range(tensor, plan.placements[tensor]) for tensor in origins]
    memories = {
        placement.memory: number for number, placement in enumerate(plan.placements.values())
    }
    region = np.array([memories[plan.placements[name].memory] for name in origins], np.int64)
    low = np.array([start for start, _ in ranges], np.int64)
    high = np.array([end for _, end in ranges], np.int64)
    written = np.array([program.lives[tensor].written for tensor in origins], np.int64)
    read = np.array([program.lives[tensor].read for tensor in origins], np.int64)
    for index, tensor in enumerate(origins):
        rest = slice(index + 1, None)
        shared = (
            (region[rest] == region[index])
            & (low[rest] < high[index])
            & (low[index] < high[rest])
            & (written[rest] <= read[index])
        )
        for other in shared.nonzero()[0].tolist():
            yield tensor, origins[index + 1 + other]


def _is_explained(earlier: Tensor, later: Tensor, program: Replay, plan: MemoryPlan) -> bool:
    return (
        _is_taken_over(earlier, later, program, plan)
        or _is_initial_state(earlier, later, program, plan)
        or _is_joined(earlier, later, program, plan)
        or earlier in _kept_in(later, program, plan)
        or _are_apart(earlier, later, plan)
    )


def _are_apart(earlier: Tensor, later: Tensor, plan: MemoryPlan) -> bool:
    """True if two tensors with gaps have no byte in common."""
    places = [plan.placements[tensor] for tensor in (earlier, later)]
    if any(place.strides is None for place in places) or earlier.type.dtype != later.type.dtype:
        return False
    own, other = (addresses(tensor, plan.placements[tensor]) for tensor in (earlier, later))
    return not np.isin(own, other).any()


def _is_taken_over(earlier: Tensor, later: Tensor, program: Replay, plan: MemoryPlan) -> bool:
    """True if ``later`` overwrites ``earlier`` in the step that reads it last."""
    op = later.producer
    return (
        op is not None
        and op in plan.inplace
        and later is op.output
        and program.origin(op.operand(plan.inplace[op])) is earlier
        and program.lives[earlier].read == program.lives[later].written
        and _memory(earlier, plan) == _memory(later, plan)
    )


def _memory(tensor: Tensor, plan: MemoryPlan) -> tuple[object, tuple[int, int]]:
    """The memory of ``tensor``, in whatever order its elements are."""
    return plan.placements[tensor].memory, byte_range(tensor, plan.placements[tensor])


def _is_initial_state(earlier: Tensor, later: Tensor, program: Replay, plan: MemoryPlan) -> bool:
    """True if ``later`` is the final value of a loop state that begins as ``earlier``."""
    op = later.producer
    if op is None or op.op_type != "Loop" or later not in op.outputs:
        return False
    index = 2 + op.outputs.index(later)
    return (
        index < 2 + integer(op.attributes, "states")
        and program.origin(op.operand(index)) is earlier
        and program.lives[earlier].read == program.lives[later].written
        and plan.placements[earlier] == plan.placements[later]
        and earlier.type.nbytes == later.type.nbytes
    )


def _kept_in(value: Tensor, program: Replay, plan: MemoryPlan) -> Iterator[Tensor]:
    """The variables and loop states (as results of the loop) in whose memory ``value`` may lie.

    It replaces their content, or a part of it, when its own graph says so.  Until then nothing
    else may read that, except the op that computes the value, in step.
    """
    written = program.lives[value].written
    low, high = byte_range(value, plan.placements[value])
    for op, copied in program.copied.items():
        for kept, place, replacement in _replaced_by(op, plan):
            target = program.origin(kept)
            if program.origin(replacement) is not value or plan.placements[replacement] != place:
                continue
            reads = [
                step
                for step, name in program.reads.get(target, [])
                if _overlap(byte_range(name, plan.placements[name]), (low, high))
            ]
            if not any(written < step <= copied for step in reads):
                in_step = value.producer in plan.inplace or written not in reads
                if in_step:
                    yield target


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _replaced_by(op: Op, plan: MemoryPlan) -> Iterator[tuple[Tensor, MemoryPlace, Tensor]]:
    """The tensors whose memory ``op`` overwrites, where it does, and the values it puts there."""
    if op.op_type == "CopyVarUpdate":
        variable, value = op.operand(0), op.operand(1)
        place = plan.placements[variable]
        start = integer(op.attributes, "start", 0) * variable.type.dtype.itemsize
        yield variable, replace(place, offset=place.offset + start), value
        return
    states = integer(op.attributes, "states")
    body = op.subgraphs["body"]
    for kept, value in zip(op.outputs[:states], body.outputs[1 : 1 + states], strict=True):
        yield kept, plan.placements[kept], value


def _is_joined(earlier: Tensor, later: Tensor, program: Replay, plan: MemoryPlan) -> bool:
    """True if ``earlier`` is, perhaps by way of other Concats, a part of the Concat ``later``."""
    op = later.producer
    if op is None or op not in plan.joined:
        return False
    operands = [op.operand(index) for index in plan.joined[op]]
    parts = [(operand, program.origin(operand)) for operand in operands]
    return any(
        operand.type.nbytes == part.type.nbytes
        and (part is earlier or _is_joined(earlier, part, program, plan))
        for operand, part in parts
    )
