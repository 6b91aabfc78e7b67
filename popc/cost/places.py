"""The memory that tensors share, and when each begins and ends: the same on every chip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from popc.cost.io_tiles import buffers_of_unrolled, find_on_io_tiles
from popc.ir import Graph, Op, Tensor
from popc.memory import MemoryPlan
from popc.placement import ChipsOfValues
from popc.schedule import Schedule
from popc.target import Target
from popc_runtime.format import Region

__all__ = ["Places", "RootSpan"]

_LASTING = (Region.CONSTANT, Region.STATE, Region.REMOTE)


class RootSpan(NamedTuple):
    """The roots that begin with an op, and those that nothing touches behind it."""

    begin: list[Tensor]
    end: list[Tensor]


class Places:
    """The roots of tensors: each lies in the memory of one.

    Attributes:
        plan: Says so.
        on_io: Tensors on the tiles that transfer.
        handed_over: Roots of operands and results of calls: `popc.cost.calls` counts their copies.
    """

    def __init__(self, graph: Graph, schedule: Schedule, plan: MemoryPlan, target: Target) -> None:
        self.plan = plan
        self.on_io = find_on_io_tiles(graph) if target.num_io_tiles else frozenset[Tensor]()
        self._chips = target.num_ipus
        self._homes = ChipsOfValues(graph)
        self._roots: dict[Tensor, Tensor] = {}
        self._spans: dict[Graph, tuple[list[RootSpan], list[Tensor]]] = {}
        for op in schedule.load:
            if op.op_type == "Expand" and op.operand(0).type.size == 1:
                self._roots[op.output] = op.operand(0)  # a tile writes one number where it is read
            else:
                self._share(op)
        for order in schedule.orders.values():
            for op in order:
                self._share(op)
        self.handed_over = {
            self.root(tensor)
            for nested in graph.walk()
            if nested in plan.frame_bytes
            for tensor in (*nested.inputs, *nested.outputs)
        }

    def root(self, tensor: Tensor) -> Tensor:
        """The tensor in whose memory ``tensor`` lies."""
        passed: list[Tensor] = []
        while tensor in self._roots:
            passed.append(tensor)
            tensor = self._roots[tensor]
        for alias in passed:  # chains of ops in place are long: the next one has a short way
            self._roots[alias] = tensor
        return tensor

    def home(self, tensor: Tensor) -> int:
        """The chip that holds ``tensor``, which an op computes."""
        home = self._homes.of(tensor)
        return home if home is not None and home < self._chips else 0

    def is_passing(self, root: Tensor) -> bool:
        """True if memory is its own for a part of a run, on the chip that computes it."""
        return root not in self.handed_over and not self.lies_for_good(root)

    def lies_for_good(self, tensor: Tensor) -> bool:
        """True if memory is its own from load to unload."""
        if tensor.kind.outlasts_runs:
            return True
        placement = self.plan.placements.get(tensor)
        return placement is not None and placement.region in _LASTING

    def lies_elsewhere(self, tensor: Tensor) -> bool:
        """True if it lies in streaming memory."""
        placement = self.plan.placements.get(tensor)
        return placement is not None and placement.region is Region.REMOTE

    def fetches(self, op: Op, tensor: Tensor) -> bool:
        """True if ``op`` reads ``tensor`` off chip, all of it or some of its rows."""
        rows = op.op_type == "RemoteGather" and self.root(op.operand(0)) is tensor
        return rows or op.op_type == "RemoteLoad"

    def memory(self, root: Tensor) -> object:
        """A key, equal for tensors that are one memory while both are alive.

        The states of a loop lie where their initial values and their results do; not so on io
        tiles, which take turns with two buffers.
        """
        placement = self.plan.placements.get(root)
        if placement is None or placement.region is not Region.ARENA or root in self.on_io:
            return root
        return placement.offset, root.type.nbytes

    def spans(self, graph: Graph, order: Sequence[Op]) -> tuple[list[RootSpan], list[Tensor]]:
        """The spans of all ops, and all roots that begin in ``graph``."""
        if graph not in self._spans:
            last = self._last_reads(graph, order)
            spans: list[RootSpan] = []
            for index, op in enumerate(order):
                made = list(map(self.root, op.outputs))
                touched = [*map(self.root, op.present_inputs), *made]
                begin = list(filter(self.is_passing, dict.fromkeys(made)))
                end = [root for root in dict.fromkeys(touched) if last.get(root) == index]
                spans.append(RootSpan(begin, end))
            self._spans[graph] = spans, list(last)
        return self._spans[graph]

    def _last_reads(self, graph: Graph, order: Sequence[Op]) -> dict[Tensor, int]:
        """The number of the last op that touches each root that begins in ``graph``."""
        last: dict[Tensor, int] = {}
        own = {self.root(tensor) for op in order for tensor in op.outputs}
        for index, op in enumerate(order):
            for tensor in (*op.present_inputs, *op.outputs):
                root = self.root(tensor)
                if root in own:
                    last[root] = index
        for tensor in graph.outputs:
            root = self.root(tensor)
            if root in own:
                last[root] = len(order) - 1 if graph.name != "main" else len(order)
        return last

    def _share(self, op: Op) -> None:
        if op.op_type == "IpuCopy":
            return  # its result lies on another chip
        for made, shared in buffers_of_unrolled(op):
            self._roots[made] = shared
        if op in self.plan.views:
            for tensor in op.outputs:
                self._roots[tensor] = op.operand(0)
        elif op in self.plan.inplace:
            self._roots[op.output] = op.operand(self.plan.inplace[op])
        for index in self.plan.joined.get(op, ()):
            operand = self.root(op.operand(index))
            if operand is not op.output:
                self._roots[operand] = op.output
