"""The memory plan of a program."""

from __future__ import annotations

from collections.abc import Mapping

from popc.ir import Graph, Op, Tensor
from popc.schedule import ALIGNMENT, aligned
from popc_runtime.format import Array, Region
from popc_runtime.ground.frozen import frozen

__all__ = ["ALIGNMENT", "ConstantBlock", "MemoryPlace", "MemoryPlan", "aligned"]


@frozen
class MemoryPlace:
    """The place of a tensor: offset and strides in bytes; strides ``None`` means C-contiguous.

    What lies in a parameter is counted from its first byte; elsewhere ``parameter`` is -1.
    """

    region: Region
    offset: int
    strides: tuple[int, ...] | None = None
    parameter: int = -1

    @property
    def memory(self) -> tuple[Region, int]:
        """The memory that ``offset`` counts in."""
        return self.region, self.parameter


@frozen
class ConstantBlock:
    """A distinct array of the constant region.  ``data`` is C-contiguous."""

    offset: int
    data: Array


@frozen
class MemoryPlan:
    """The places of all tensors.

    Attributes:
        placements: Of every tensor of every graph.
        views: Ops that need no instruction: their outputs are views of their operand.
        inplace: Ops whose output 0 took over the memory of the operand of this number.
        joined: Concat ops with the numbers of the operands that already lie where the output wants
            them, so that nothing needs to be copied for them.
        frames: For each call, where the last parameter of what it calls lies.
        frame_bytes: For each graph that is called, the size of its last parameter.
        initial: Where the initial values of variables lie, of those that do not start as zeros.
        constants: Contents of the constant region, by offset.
        arena_bytes, state_bytes, constant_bytes, remote_bytes: Sizes of the regions.
        peak_bytes: The most bytes of the arena that are in use at one time: what no assignment of
            offsets could go below.
        naive_bytes: What the arena would need without views, in-place ops and reuse of memory.

    A graph that is called lies in its parameters: its inputs are the first, its outputs the next,
    and what it needs beside these is the last.

    The initial value of a loop state shares the state's memory where their placements are equal;
    then it needs no copy.
    """

    placements: Mapping[Tensor, MemoryPlace]
    views: frozenset[Op]
    inplace: Mapping[Op, int]
    joined: Mapping[Op, frozenset[int]]
    frames: Mapping[Op, MemoryPlace]
    frame_bytes: Mapping[Graph, int]
    initial: Mapping[Tensor, MemoryPlace]
    constants: tuple[ConstantBlock, ...]
    arena_bytes: int
    state_bytes: int
    constant_bytes: int
    peak_bytes: int
    naive_bytes: int
    remote_bytes: int = 0
