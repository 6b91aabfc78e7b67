"""The planner's working state: buffers, and where tensors lie in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

from popc.ir import Graph, Op, Tensor
from popc.memory.clock import TickSpan
from popc_runtime.format import Region
from popc_runtime.ground.frozen import distinct, frozen, mutable

__all__ = ["Buffer", "BufferRange", "Site", "Storage"]


@distinct
class Buffer:
    """A piece of memory that is allocated as a whole.

    Attributes:
        nbytes: Its size.
        owner: The graph that it belongs to; only ops of this graph may take it over.
        first, last: The ticks from and to which its content matters.
        region: The region that it lies in.
        takeable: Whether an op may overwrite it once its content is dead.
        overwritten: The last tick at which an op took it over; -1 if none did.
        home, home_offset: The buffer that has absorbed this one, and where it lies in there.
        parameter: In a graph that is called: of which parameter it is all; -1 of none.
        offset: Where it lies in its region, once that is decided.
    """

    nbytes: int
    owner: Graph
    first: int
    last: int
    region: Region = Region.ARENA
    takeable: bool = True
    overwritten: int = -1
    parameter: int = -1
    home: Buffer | None = None
    home_offset: int = 0
    offset: int = 0

    def resolve(self) -> tuple[Buffer, int]:
        """The buffer that is really allocated, and where this one lies in it."""
        buffer, offset = self, 0
        while buffer.home is not None:
            offset += buffer.home_offset
            buffer = buffer.home
        return buffer, offset

    def absorb(self, other: Buffer, offset: int) -> None:
        """Let ``other`` lie in this buffer from ``offset`` on, and live as long as both."""
        other.home, other.home_offset = self, offset
        self.first = min(self.first, other.first)
        self.last = max(self.last, other.last)
        self.overwritten = max(self.overwritten, other.overwritten)
        self.takeable = self.takeable and other.takeable


class BufferRange(NamedTuple):
    """A part of an allocated buffer, in bytes."""

    buffer: Buffer
    start: int
    end: int

    def overlaps(self, other: BufferRange) -> bool:
        """True if some byte is in both."""
        return self.buffer is other.buffer and self.start < other.end and other.start < self.end

    def within(self) -> BufferRange:
        """The same part of the buffer that is now allocated."""
        buffer, offset = self.buffer.resolve()
        return BufferRange(buffer, self.start + offset, self.end + offset)


@frozen
class Site:
    """The place of a tensor in a buffer; strides ``None`` means C-contiguous."""

    buffer: Buffer
    offset: int = 0
    strides: tuple[int, ...] | None = None

    def fills(self, tensor: Tensor, strides: tuple[int, ...] | None = None) -> Buffer | None:
        """The allocated buffer if ``tensor``, which lies here, is all that it holds.

        ``strides``: those of the memory format that it must have to count.
        """
        buffer, offset = self.buffer.resolve()
        whole = self.strides == strides and tensor.type.nbytes == buffer.nbytes
        return buffer if whole and offset + self.offset == 0 else None

    def extent(self, tensor: Tensor) -> BufferRange:
        """The part of an allocated buffer that ``tensor``, which lies here, touches."""
        buffer, offset = self.buffer.resolve()
        start = end = offset + self.offset
        if self.strides is None:
            return BufferRange(buffer, start, end + tensor.type.nbytes)
        steps = [
            (dim - 1) * stride for dim, stride in zip(tensor.type.shape, self.strides, strict=True)
        ]
        end += tensor.type.dtype.itemsize + sum(step for step in steps if step > 0)
        return BufferRange(buffer, start + sum(step for step in steps if step < 0), end)


class Callee(NamedTuple):
    """The facts that calls of a graph have to know.

    Attributes:
        frame_bytes: The memory that it needs beside operands and results.
    """

    frame_bytes: int


@mutable
class Storage:
    """Sites of all tensors, buffers in order of creation, and the ops that are views.

    ``frames``: for each call, what the callee gets to work in.
    """

    callees: Mapping[Graph, Callee] = field(default_factory=dict["Graph", "Callee"])
    sites: dict[Tensor, Site] = field(default_factory=dict[Tensor, Site])
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    views: set[Op] = field(default_factory=set[Op])
    frames: dict[Op, Buffer] = field(default_factory=dict[Op, Buffer])

    def allocate(
        self, tensor: Tensor, owner: Graph, first: int, strides: tuple[int, ...] | None = None
    ) -> Buffer:
        """Give ``tensor`` a buffer of its own from tick ``first`` on."""
        buffer = Buffer(tensor.type.nbytes, owner, first, first)
        self.buffers.append(buffer)
        self.sites[tensor] = Site(buffer, 0, strides)
        return buffer

    def enter(self, op: Op, owner: Graph, nbytes: int, span: TickSpan) -> None:
        """Give what ``op`` calls a buffer while it runs."""
        buffer = Buffer(nbytes, owner, span.begin, span.end, takeable=False)
        self.buffers.append(buffer)
        self.frames[op] = buffer

    def read(self, tensor: Tensor, tick: int) -> None:
        """Note that ``tensor`` is read at ``tick``."""
        buffer = self.sites[tensor].buffer
        if tick > buffer.last:  # noqa: PLR1730 - a call takes three times as long
            buffer.last = tick

    def roots(self, region: Region) -> list[Buffer]:
        """The buffers to allocate in ``region``."""
        return [
            buffer
            for buffer in self.buffers
            if buffer.home is None and buffer.region is region and buffer.nbytes > 0
        ]
