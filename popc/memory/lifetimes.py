"""Sites and lifetimes of all tensors, before any memory is shared other than by views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from popc.ir import Graph, Op, Tensor, TensorKind
from popc.memory.clock import Clock, TickSpan, execution
from popc.memory.constants import ConstantPool
from popc.memory.storage import Buffer, Callee, Site, Storage
from popc.ops.aliases import Aliases, Place
from popc.ops.control import (
    callee_of,
    captured_as,
    first_capture,
    is_read_throughout,
    loop_body,
    loop_header,
    loop_states,
    own_graphs,
)
from popc.schedule import Schedule
from popc_runtime.format import Region

__all__ = ["assign_storage"]


def assign_storage(
    graph: Graph,
    schedule: Schedule,
    clock: Clock,
    constants: ConstantPool,
    aliases: Aliases,
    callees: Mapping[Graph, Callee],
) -> Storage:
    """Give every tensor a buffer, or a place in that of another, and find when buffers live.

    ``aliases`` are those of the whole program; ``callees`` has the graphs that this one calls, and
    itself if it is called.
    """
    storage = Storage(callees=callees)
    for nested in own_graphs(graph):
        _place_data(storage, nested, clock, constants)
    _place_inputs(storage, graph, clock.graphs[graph].begin)
    for row in aliases.rows if graph not in callees else ():
        _place_row(storage, graph, row)
    for owner, op in execution(graph, schedule):
        if op in aliases.views:
            storage.views.add(op)
            storage.sites.update((t, _site(storage, aliases.places[t])) for t in op.outputs)
        else:
            _place_op(storage, aliases, owner, op, clock.ops[op])
    for nested in own_graphs(graph):
        for tensor in nested.outputs:
            storage.read(tensor, clock.graphs[nested].end)
    for tensor in graph.outputs if graph in callees else ():
        storage.sites[tensor].buffer.takeable = False  # the caller's, and no part of anything
    for tensor in aliases.remote:
        if tensor in storage.sites and storage.sites[tensor].buffer.region is Region.ARENA:
            storage.sites[tensor].buffer.region = Region.REMOTE
    _keep_load_results(storage, clock)
    return storage


def _place_inputs(storage: Storage, graph: Graph, begin: int) -> None:
    """Inputs have buffers of their own; a graph that is called finds them in its parameters."""
    for number, tensor in enumerate(graph.inputs):
        buffer = storage.allocate(tensor, graph, begin)
        if graph in storage.callees:
            buffer.region, buffer.parameter = Region.PARAMETER, number
            buffer.takeable = False


def _place_row(storage: Storage, graph: Graph, row: Sequence[Tensor]) -> None:
    """Let variables lie one behind the other."""
    buffers = [storage.sites[variable].buffer for variable in row]
    whole = Buffer(
        sum(result.nbytes for result in buffers), graph, buffers[0].first, buffers[0].last
    )
    whole.region, whole.takeable = Region.STATE, False
    storage.buffers.append(whole)
    offset = 0
    for buffer in buffers:
        whole.absorb(buffer, offset)
        offset += buffer.nbytes


def _site(storage: Storage, place: Place) -> Site:
    return Site(storage.sites[place.root].buffer, place.offset, place.strides)


def _place_data(storage: Storage, graph: Graph, clock: Clock, constants: ConstantPool) -> None:
    """Constants lie where the pool says, variables in memory of their own for good."""
    for tensor in graph.tensors.values():
        if tensor.is_constant:
            buffer = Buffer(
                tensor.type.nbytes,
                graph,
                first=0,
                last=clock.now,
                region=Region.CONSTANT,
                takeable=False,
                offset=constants.offset(tensor),
            )
            storage.sites[tensor] = Site(buffer)
        elif tensor.kind is TensorKind.VARIABLE:
            buffer = storage.allocate(tensor, graph, 0)
            buffer.last, buffer.takeable = clock.now, False
            buffer.region = Region.REMOTE if tensor.off_chip else Region.STATE


def _place_op(storage: Storage, aliases: Aliases, owner: Graph, op: Op, span: TickSpan) -> None:
    """Outputs get buffers of their own; operands live until they are read."""
    for output in op.outputs:
        storage.allocate(output, owner, span.begin, aliases.places[output].strides)
    for index, operand in enumerate(op.inputs):
        if operand is not None:
            late = bool(op.subgraphs) and is_read_throughout(op, index)
            storage.read(operand, span.end if late else span.begin)
    if op.subgraphs:
        _place_control(storage, owner, op, span)


def _place_control(storage: Storage, owner: Graph, op: Op, span: TickSpan) -> None:
    """Results live from beginning to end; what the subgraphs are given lies where it comes from."""
    for output in op.outputs:
        storage.read(output, span.end)
    callee = callee_of(op)
    if callee is not None:
        storage.enter(op, owner, storage.callees[callee].frame_bytes, span)
        return
    for index in range(first_capture(op), len(op.inputs)):
        for inner in captured_as(op, index):
            storage.sites[inner] = storage.sites[op.operand(index)]
    body = loop_body(op)
    if body is None:
        return
    for tensor in loop_header(body):
        buffer = storage.allocate(tensor, body, span.begin)
        buffer.last, buffer.takeable = span.end, False
    for state in loop_states(op):
        storage.sites[state.inner] = storage.sites[state.result]


def _keep_load_results(storage: Storage, clock: Clock) -> None:
    """Move what load time computes for later runs to the state region, the rest to the arena.

    What it puts into streaming memory stays there.
    """
    for buffer in storage.buffers:
        if not buffer.first <= clock.load_end < buffer.last:
            continue
        if buffer.region is Region.ARENA:
            buffer.region = Region.STATE
        if buffer.region in (Region.STATE, Region.REMOTE):
            buffer.last = clock.now  # every run reads it
