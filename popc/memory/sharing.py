"""Ops that write their result over an operand that nobody needs any more.

Output 0 of an op takes over the buffer of an operand if all of this holds:

* the op's spec lists the operand under ``inplace``, both have the same type, and the op's settings
  do not forbid it (they also say which operand is tried first);
* the operand is all that its buffer holds, in the memory format of the output;
* the buffer belongs to the graph that holds the op, so it is no capture, state or loop counter; it
  is neither constant nor variable; and it lies in the region where the output would;
* nothing that lies in the buffer is read later, by whatever name and through whatever view;
* every other operand in that buffer is listed under ``inplace`` too and is the very same memory.

A loop state takes over the buffer of its initial value on the same terms, if no other operand of
the loop lies in it.

First of all, though, a value that is going to be copied over a state or a variable is computed
there if it can be (see `carrying`).
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from popc.ir import Graph, Op, Tensor
from popc.memory.carrying import Carried, find_carried
from popc.memory.clock import Clock
from popc.memory.storage import Buffer, BufferRange, Storage
from popc.ops import OPS
from popc.ops.control import loop_body, loop_states
from popc.ops.overwriting import overwritable
from popc.ops.streaming import STORE
from popc_runtime.format import Region

__all__ = ["share_buffers"]


def share_buffers(
    execution: Sequence[tuple[Graph, Op]], storage: Storage, clock: Clock
) -> dict[Op, int]:
    """Merge buffers in order of execution; the operand that each in-place op has taken over."""
    taken: dict[Op, int] = {}
    carried = find_carried(execution, storage, clock)
    for owner, op in execution:
        tick = clock.ops[op].begin
        if op.subgraphs and loop_body(op) is not None:
            _share_states(storage, owner, op, tick)
        elif op.op_type == STORE:
            for output in op.outputs:
                _settle(storage, op, output, carried, tick)
        elif op.outputs and op not in storage.views:
            settled = _settle(storage, op, op.output, carried, tick) if carried else None
            if settled is None:
                index = _share_operand(storage, owner, op, tick)
            else:
                index = settled if settled >= 0 else None
            if index is not None:
                taken[op] = index
    return taken


def _share_operand(storage: Storage, owner: Graph, op: Op, tick: int) -> int | None:
    if not op.outputs:
        return None
    in_step = OPS[op.op_type].inplace if op.op_type in OPS else ()
    for index in overwritable(op):
        if op.optional(index) is None:
            continue
        buffer = _takeable(storage, owner, op, (index, op.output), tick)
        if buffer is not None and _only_read_in_step(storage, op, in_step, index):
            _take(storage, buffer, op.output, tick)
            return index
    return None


def _settle(
    storage: Storage, op: Op, output: Tensor, carried: dict[Buffer, Carried], tick: int
) -> int | None:
    """Compute ``output`` where it is going to be kept, if that is allowed.

    Returns:
        The number of the operand that lies there, -1 if none does; ``None`` if it is not allowed.
    """
    own = storage.sites[output].buffer
    if own not in carried or own.home is not None or not own.nbytes:
        return None
    memory, last_read = carried[own]
    home = memory.within()
    here = home.buffer.region
    is_variable = here is Region.STATE or (here is Region.REMOTE and not home.buffer.takeable)
    if (here is Region.REMOTE) != (own.region is Region.REMOTE):
        return None
    whole = home.start == 0 and home.end == home.buffer.nbytes
    if home.buffer is own or last_read >= tick or not (is_variable or whole):
        return None
    inplace = overwritable(op)
    there = [
        index
        for index, operand in enumerate(op.inputs)
        if operand is not None and storage.sites[operand].extent(operand).overlaps(home)
    ]
    if not all(index in inplace and _lies_in(storage, op, index, home) for index in there):
        return None
    home.buffer.absorb(own, home.start)
    home.buffer.overwritten = tick
    return there[0] if there else -1


def _lies_in(storage: Storage, op: Op, index: int, home: BufferRange) -> bool:
    operand = op.operand(index)
    site = storage.sites[operand]
    plain = site.strides is None and storage.sites[op.output].strides is None
    return plain and site.extent(operand) == home and operand.type == op.output.type


def _share_states(storage: Storage, owner: Graph, op: Op, tick: int) -> None:
    for state in loop_states(op):
        buffer = _takeable(storage, owner, op, (state.operand, state.result), tick)
        if buffer is not None and _only_read_in_step(storage, op, (), state.operand):
            _take(storage, buffer, state.result, tick)


def _takeable(
    storage: Storage, owner: Graph, op: Op, pair: tuple[int, Tensor], tick: int
) -> Buffer | None:
    """The buffer of operand ``pair[0]`` if its last use is at ``tick`` and ``pair[1]`` fits."""
    operand, output = op.operand(pair[0]), pair[1]
    if operand.type != output.type:
        return None
    site = storage.sites[output]
    buffer = storage.sites[operand].fills(operand, site.strides)
    fits = (
        buffer is not None
        and buffer.last == tick
        and buffer.nbytes > 0
        and buffer.takeable
        and buffer.owner is owner
        and buffer.region is site.buffer.region
    )
    return buffer if fits else None


def _only_read_in_step(storage: Storage, op: Op, inplace: Container[int], index: int) -> bool:
    """True if operand ``index``'s buffer is read element by element just as it is overwritten."""
    buffer = storage.sites[op.operand(index)].buffer.resolve()[0]
    for other, operand in enumerate(op.inputs):
        if other == index or operand is None:
            continue
        site = storage.sites[operand]
        if site.buffer.resolve()[0] is buffer and not (
            other in inplace
            and site.fills(operand, storage.sites[op.operand(index)].strides) is buffer
            and operand.type == op.operand(index).type
        ):
            return False
    return True


def _take(storage: Storage, buffer: Buffer, output: Tensor, tick: int) -> None:
    buffer.absorb(storage.sites[output].buffer, 0)
    buffer.overwritten = tick
