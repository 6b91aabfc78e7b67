"""The order in which memory is planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

from popc.ir import Graph, Op, Tensor
from popc.memory.clock import execution, read_clock
from popc.memory.constants import ConstantPool
from popc.memory.formats import BYTE_CONVOLUTIONS, CONVOLUTIONS, choose_formats
from popc.memory.joining import join_concats
from popc.memory.lifetimes import assign_storage
from popc.memory.offsets import BufferOffsets, pack
from popc.memory.plan import MemoryPlace, MemoryPlan, aligned
from popc.memory.sharing import share_buffers
from popc.memory.storage import Buffer, Callee, Storage
from popc.ops.aliases import Aliases, find_aliases
from popc.ops.control import called_graphs, own_graphs
from popc.progress import OnBytes, no_bytes
from popc.schedule import Schedule
from popc_runtime.format import Region
from popc_runtime.ground.frozen import mutable

__all__ = ["plan_memory"]


def plan_memory(
    graph: Graph,
    schedule: Schedule,
    *,
    inplace: bool = True,
    channels_last: bool = False,
    on_bytes: OnBytes = no_bytes,
) -> MemoryPlan:
    """Place every tensor of ``graph`` and of the graphs nested in it.

    ``inplace=False`` keeps every result apart from all operands: nothing is overwritten by its
    successor, no Concat is joined.  ``channels_last`` lets images lie pixel by pixel where ops
    allow it, not only those that convolutions of bytes make.  ``on_bytes`` is told how many bytes
    of constants have been compared.
    """
    initialised = [tensor for tensor in graph.variables if tensor.initial is not None]
    constants = ConstantPool(
        [*(tensor for part in graph.walk() for tensor in part.constants), *initialised], on_bytes
    )
    formats = choose_formats(graph, CONVOLUTIONS if channels_last else BYTE_CONVOLUTIONS)
    aliases = None if formats else schedule.aliases
    if aliases is None:
        aliases = find_aliases(graph, formats)
    planner = _Planner(schedule, constants, aliases, inplace=inplace)
    for callee in called_graphs(graph):
        planner.plan_callee(callee)
    arena, state_bytes, remote_bytes = planner.plan_top(graph)
    found = planner.found
    return MemoryPlan(
        placements=MappingProxyType({t: found.placements[t] for t in _tensors_of(graph)}),
        views=frozenset(found.views),
        inplace=MappingProxyType(found.inplace),
        joined=MappingProxyType(found.joined),
        frames=MappingProxyType(found.frames),
        frame_bytes=MappingProxyType(
            {callee: called.frame_bytes for callee, called in planner.callees.items()}
        ),
        initial=MappingProxyType(
            {t: MemoryPlace(Region.CONSTANT, constants.offset(t)) for t in initialised}
        ),
        constants=tuple(constants.blocks),
        arena_bytes=arena.height,
        state_bytes=state_bytes,
        constant_bytes=constants.nbytes,
        peak_bytes=arena.bound,
        naive_bytes=_naive_bytes(graph, schedule),
        remote_bytes=remote_bytes,
    )


def _tensors_of(graph: Graph) -> list[Tensor]:
    return [tensor for part in graph.walk() for tensor in part.tensors.values()]


@mutable
class _Found:
    """The plan so far; see `MemoryPlan`."""

    placements: dict[Tensor, MemoryPlace] = field(default_factory=dict[Tensor, MemoryPlace])
    views: set[Op] = field(default_factory=set[Op])
    inplace: dict[Op, int] = field(default_factory=dict[Op, int])
    joined: dict[Op, frozenset[int]] = field(default_factory=dict[Op, "frozenset[int]"])
    frames: dict[Op, MemoryPlace] = field(default_factory=dict[Op, MemoryPlace])


class _Planner:
    """Plans the graphs that are called, each once and before those that call it, then the top."""

    def __init__(
        self, schedule: Schedule, constants: ConstantPool, aliases: Aliases, *, inplace: bool
    ) -> None:
        self._schedule = schedule
        self._constants = constants
        self._aliases = aliases
        self._inplace = inplace
        self.found = _Found()
        self.callees: dict[Graph, Callee] = {}

    def plan_callee(self, graph: Graph) -> None:
        """Results and whatever lies in their memory go to parameters, the rest to the frame."""
        storage = self._share(graph, {**self.callees, graph: Callee(0)})
        count = len(graph.inputs)
        for number, tensor in enumerate(graph.outputs, start=count):
            buffer = storage.sites[tensor].buffer.resolve()[0]
            assert storage.sites[tensor].fills(tensor) is buffer, f"{tensor!r} is a part"
            buffer.region, buffer.parameter = Region.PARAMETER, number
        frame = _pack(storage.roots(Region.ARENA))
        self.callees[graph] = Callee(frame.height)
        self._place(graph, storage, frame=count + len(graph.outputs))

    def plan_top(self, graph: Graph) -> tuple[BufferOffsets, int, int]:
        """The packing of the arena; the bytes that the state region and the remote one need."""
        storage = self._share(graph, self.callees)
        arena = _pack(storage.roots(Region.ARENA))
        state_bytes = _stack(storage.roots(Region.STATE))
        remote = _pack(storage.roots(Region.REMOTE))
        self._place(graph, storage)
        return arena, state_bytes, remote.height

    def _share(self, graph: Graph, callees: Mapping[Graph, Callee]) -> Storage:
        """Buffers and who lies in which."""
        schedule = self._schedule
        clock = read_clock(graph, schedule)
        storage = assign_storage(graph, schedule, clock, self._constants, self._aliases, callees)
        if self._inplace:
            order = list(execution(graph, schedule))
            self.found.inplace.update(share_buffers(order, storage, clock))
            # After: it must know what is overwritten.
            self.found.joined.update(join_concats(order, storage, clock))
        return storage

    def _place(self, graph: Graph, storage: Storage, frame: int = -1) -> None:
        """Note where everything lies; what is in the arena, in parameter ``frame`` if given."""
        self.found.views |= storage.views
        for part in own_graphs(graph):
            for tensor in part.tensors.values():
                site = storage.sites[tensor]
                place = _placement(site.buffer, site.offset, site.strides, frame)
                self.found.placements[tensor] = place
        for op, buffer in storage.frames.items():
            self.found.frames[op] = _placement(buffer, 0, None, frame)


def _placement(
    buffer: Buffer, offset: int, strides: tuple[int, ...] | None, frame: int
) -> MemoryPlace:
    home, inside = buffer.resolve()
    offset += inside + home.offset
    if home.region is Region.ARENA and frame >= 0:
        return MemoryPlace(Region.PARAMETER, offset, strides, frame)
    return MemoryPlace(home.region, offset, strides, home.parameter)


def _pack(buffers: Sequence[Buffer]) -> BufferOffsets:
    packing = pack(
        [buffer.first for buffer in buffers],
        [buffer.last for buffer in buffers],
        [aligned(buffer.nbytes) for buffer in buffers],
    )
    for buffer, offset in zip(buffers, packing.offsets, strict=True):
        buffer.offset = offset
    return packing


def _stack(buffers: Sequence[Buffer]) -> int:
    """Place buffers that all live to the end one above the other; the bytes that they need."""
    height = 0
    for buffer in buffers:
        buffer.offset = height
        height += aligned(buffer.nbytes)
    return height


def _naive_bytes(graph: Graph, schedule: Schedule) -> int:
    ops: list[Op] = [op for order in schedule.orders.values() for op in order]
    tensors = [*graph.inputs, *(tensor for op in ops for tensor in op.outputs)]
    return sum(aligned(tensor.type.nbytes) for tensor in tensors)
