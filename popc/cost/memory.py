"""Bytes of every tile, step by step.

Views, ops that work in place and joined Concats share memory as the memory plan says; what lies
there is mapped linearly, each tensor beginning on the tile where the last one ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from popc.cost.chips import chip_of
from popc.cost.code import measure_code, total
from popc.cost.codesize import CodeUse
from popc.cost.io_tiles import buffers_of_unrolled, find_on_io_tiles
from popc.cost.mapping import Mapping as TileMapping
from popc.cost.mapping import device_bytes, linear_mapping
from popc.cost.phases import Phase
from popc.cost.quarters import device_dtype
from popc.cost.report import Categories, LiveStep, LiveTensor, MemoryReport, Regions
from popc.ir import Graph, Op, Tensor, TensorKind
from popc.memory import MemoryPlan
from popc.ops.control import first_capture
from popc.placement import ChipsOfValues, is_main_loop
from popc.schedule import Schedule
from popc.target import Target
from popc_runtime.format import Array, Region

__all__ = ["MemoryWalk"]

# Tensors that a report lists; the memory of the others does not matter to anybody.
_LISTED = 256
_LASTING = (Region.CONSTANT, Region.STATE, Region.REMOTE)


class _Tiles:
    """The places of tensors, and the memory that they share."""

    def __init__(
        self, graph: Graph, schedule: Schedule, plan: MemoryPlan, target: Target, chip: int
    ) -> None:
        self.count = target.tiles_per_ipu
        # Tiles that compute come first.
        self._parts = {
            "compute": range(target.compute_tiles),
            "io": range(target.compute_tiles, target.tiles_per_ipu),
        }
        self._on_io = find_on_io_tiles(graph) if target.num_io_tiles else frozenset[Tensor]()
        self._target = target
        self._chip = chip
        self.plan = plan
        self._next = dict.fromkeys(self._parts, 0)
        self._mappings: dict[Tensor, TileMapping] = {}
        self._roots: dict[Tensor, Tensor] = {}
        self._homes = ChipsOfValues(graph)
        for op in schedule.load:
            if op.op_type == "Expand" and op.operand(0).type.size == 1:
                self._roots[op.output] = op.operand(0)  # a tile writes one number where it is read
            else:
                self._share(op)
        for order in schedule.orders.values():
            for op in order:
                self._share(op)
        # Operands and results of calls: `popc.cost.calls` counts their copies.
        self.handed_over = {
            self.root(tensor)
            for nested in graph.walk()
            if nested in plan.frame_bytes
            for tensor in (*nested.inputs, *nested.outputs)
        }
        self.always: Array = np.zeros(self.count, np.int64)
        self.constants: Array = np.zeros(self.count, np.int64)  # of these, not weights
        self.gaps = 0
        self.permanent = self._permanent(graph, schedule)
        for tensor in self.permanent:
            mapping = self.mapping(tensor)
            mapping.add_to(self.always)
            if tensor.kind is TensorKind.CONSTANT and not _is_weight(tensor):
                mapping.add_to(self.constants)
            self.gaps += -mapping.busiest % 8

    def root(self, tensor: Tensor) -> Tensor:
        """The tensor in whose memory ``tensor`` lies."""
        passed: list[Tensor] = []
        while tensor in self._roots:
            passed.append(tensor)
            tensor = self._roots[tensor]
        for alias in passed:  # chains of ops in place are long: the next one has a short way
            self._roots[alias] = tensor
        return tensor

    def mapping(self, tensor: Tensor) -> TileMapping:
        """The mapping of a root."""
        if tensor not in self._mappings:
            type_ = tensor.type
            name = "io" if tensor in self._on_io else "compute"
            part, first = self._parts[name], self._next[name]
            dtype = device_dtype(tensor, self._target)
            one = linear_mapping(type_.size, dtype, len(part), first=first)
            self._next[name] = (first + one.used) % len(part)
            self._mappings[tensor] = replace(one, start=part.start)
        return self._mappings[tensor]

    def part(self, op: Op) -> slice:
        """The tiles that run ``op``."""
        tiles = self._parts[op.settings.tile_set if self._parts["io"] else "compute"]
        return slice(tiles.start, tiles.stop)

    def runs_here(self, op: Op) -> bool:
        """True if the chip of this report runs ``op``."""
        return chip_of(op, self._target.num_ipus) == self._chip

    def lies_here(self, tensor: Tensor) -> bool:
        """True if the chip of this report holds ``tensor``, which an op computes."""
        return self._home(tensor) == self._chip

    def _home(self, tensor: Tensor) -> int:
        home = self._homes.of(tensor)
        return home if home is not None and home < self._target.num_ipus else 0

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

    def fetches(self, op: Op, tensor: Tensor) -> bool:
        """True if ``op`` reads ``tensor`` off chip, all of it or some of its rows."""
        rows = op.op_type == "RemoteGather" and self.root(op.operand(0)) is tensor
        return rows or op.op_type == "RemoteLoad"

    def _permanent(self, graph: Graph, schedule: Schedule) -> list[Tensor]:
        """Variables, and constants and values computed at load that ops of the program read."""
        own = [variable for variable in graph.variables if self.lies_here(variable)]
        found = dict.fromkeys(tensor for tensor in own if not tensor.off_chip)
        data: set[int] = set()
        for order in schedule.orders.values():
            for op in order:
                for tensor in map(self.root, self._read_here(op)):
                    if tensor in found or not self.lies_for_good(tensor):
                        continue
                    if self.fetches(op, tensor) or self.lies_elsewhere(tensor):
                        continue
                    if tensor.data is not None:
                        if id(tensor.data) in data:  # nested graphs share constants
                            continue
                        data.add(id(tensor.data))
                    found[tensor] = None
        return self._apart(found)

    def _read_here(self, op: Op) -> list[Tensor]:
        """Operands of ``op`` on this chip; ops in a loop around all chips read its captures."""
        if not is_main_loop(op):
            return op.present_inputs if self.runs_here(op) else []
        states = (tensor for tensor in op.inputs[: first_capture(op)] if tensor is not None)
        return [tensor for tensor in states if self.lies_here(tensor)]

    def _apart(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """``tensors`` without those in the memory of others, as new values of variables are."""
        kept: list[Tensor] = []
        ends: dict[int, int] = {}
        for tensor in tensors:
            placement = self.plan.placements.get(tensor)
            if placement is not None and placement.region is Region.STATE:
                end = placement.offset + tensor.type.nbytes
                if end <= ends.get(placement.offset, -1):
                    continue
                ends[placement.offset] = end
            kept.append(tensor)
        return kept

    def memory(self, root: Tensor) -> object:
        """A key, equal for tensors that are one memory while both are alive.

        The states of a loop lie where their initial values and their results do; not so on io
        tiles, which take turns with two buffers.
        """
        placement = self.plan.placements.get(root)
        if placement is None or placement.region is not Region.ARENA or root in self._on_io:
            return root
        return placement.offset, root.type.nbytes


def _is_weight(constant: Tensor) -> bool:
    """True for what is a parameter of the model: floats, more than one."""
    return constant.type.dtype.is_float and constant.type.rank > 0


class MemoryWalk:
    """One pass over the program in order of execution; bodies of loops are walked once.

    Attributes:
        over: Bytes that the busiest tile lacks while an op runs.
    """

    def __init__(
        self,
        graph: Graph,
        schedule: Schedule,
        plan: MemoryPlan,
        phases: Mapping[Op, Sequence[Phase]],
        uses: Sequence[CodeUse],
        target: Target,
        chip: int = 0,
    ) -> None:
        """Walk ``graph`` for one of the chips that run it.

        Args:
            graph: The top graph.
            schedule: In which order ops run.
            plan: Who shares memory.
            phases: Of every op.
            uses: Steps of every op of this chip, which need code on the tiles that take part.
            target: What kind of chips they are, and how many.
            chip: The number of this one.
        """
        self.over: dict[Op, int] = {}
        self._target = target
        self._tiles = _Tiles(graph, schedule, plan, target, chip)
        self._phases = phases
        self._code = measure_code(graph, uses, target, chip)
        self._base: Array = self._tiles.always + total(self._code)
        self._base += target.tile.stack_bytes + self._tiles.gaps
        self._live: Array = np.zeros(self._tiles.count, np.int64)
        self._alive: dict[Tensor, int] = {}
        self._owners: dict[object, tuple[Tensor, int]] = {}  # whose mapping counts, users
        self._uses: list[tuple[Tensor, int, int]] = []
        self._steps: list[LiveStep] = []
        self._worst: tuple[int, int, Array, Array] = (-1, -1, self._live, self._live)
        self._passing = "temporary"  # the category of that at the worst step
        self._run(graph, schedule)

    def _run(self, graph: Graph, schedule: Schedule) -> None:
        """Walk ``graph``; operands of ops with subgraphs stay alive while they run."""
        order = schedule.orders[graph]
        last = self._last_reads(graph, order)
        for tensor in graph.inputs if graph.name == "main" else ():
            self._begin(tensor)
        for index, op in enumerate(order):
            for tensor in op.outputs:
                self._begin(tensor)
            self._record(op)
            for nested in op.subgraphs.values():
                self._run(nested, schedule)
            for tensor in (*op.present_inputs, *op.outputs):
                root = self._tiles.root(tensor)
                if last.get(root, -1) <= index and root in last:
                    self._end(root)
        for root in last if graph.name != "main" else ():
            self._end(root)  # results of the op around it take over what the graph gives

    def _last_reads(self, graph: Graph, order: Sequence[Op]) -> dict[Tensor, int]:
        """The number of the last op that touches each root that begins in ``graph``."""
        last: dict[Tensor, int] = {}
        own = {self._tiles.root(tensor) for op in order for tensor in op.outputs}
        for index, op in enumerate(order):
            for tensor in (*op.present_inputs, *op.outputs):
                root = self._tiles.root(tensor)
                if root in own:
                    last[root] = index
        for tensor in graph.outputs:
            root = self._tiles.root(tensor)
            if root in own:
                last[root] = len(order) - 1 if graph.name != "main" else len(order)
        return last

    def _begin(self, tensor: Tensor) -> None:
        root = self._tiles.root(tensor)
        here = self._tiles.lies_here(root) and not self._tiles.lies_for_good(root)
        if not here or root in self._alive or root in self._tiles.handed_over:
            return
        self._alive[root] = len(self._steps)
        memory = self._tiles.memory(root)
        owner, users = self._owners.get(memory, (root, 0))
        self._owners[memory] = owner, users + 1
        if users == 0:
            self._tiles.mapping(root).add_to(self._live)

    def _end(self, root: Tensor) -> None:
        if root not in self._alive:
            return
        self._uses.append((root, self._alive.pop(root), len(self._steps) - 1))
        memory = self._tiles.memory(root)
        owner, users = self._owners.pop(memory)
        if users > 1:
            self._owners[memory] = owner, users - 1
        else:
            self._tiles.mapping(owner).add_to(self._live, -1)

    def _record(self, op: Op) -> None:
        phases = self._phases.get(op, ()) if self._tiles.runs_here(op) else ()
        temporary = max((phase.temporary for phase in phases), default=0)
        spread: Array = np.zeros(self._tiles.count, np.int64)
        spread[self._tiles.part(op)] = temporary
        totals = self._base + self._live + spread
        tile = int(np.argmax(totals))
        busiest = int(totals[tile])
        if busiest > self._target.tile.memory_bytes:
            self.over[op] = busiest - self._target.tile.memory_bytes
        activations = int(self._live.sum())
        name = op.outputs[0].name if op.outputs else op.op_type
        self._steps.append(LiveStep(name, activations, temporary, busiest, tile))
        if busiest > self._worst[0]:
            self._passing = "message_buffers" if op.op_type == "IpuCopy" else "temporary"
            self._worst = (busiest, len(self._steps) - 1, self._live.copy(), spread)

    def report(self) -> MemoryReport:
        """The findings of the walk."""
        tile_of_chip = self._target.tile
        _, step, live, temporary = self._worst
        tile = self._steps[step].tile if step >= 0 else 0
        variables, constants = self._tiles.always, self._tiles.constants
        by_tile = {
            "variables": variables - constants,
            "constants": constants,
            "activations": live,
            self._passing: temporary,
            **self._code,
        }
        alike = {"stack": tile_of_chip.stack_bytes, "gaps": self._tiles.gaps}
        busiest = {name: int(bytes_[tile]) for name, bytes_ in by_tile.items()}
        held = Categories(**busiest, **alike)
        average = {name: int(bytes_.mean()) for name, bytes_ in by_tile.items()}
        peak = self._base + live + temporary
        return MemoryReport(
            always_live=tuple(int(count) for count in self._base),
            peak=tuple(int(count) for count in peak),
            peak_step=step,
            busiest=held,
            average=Categories(**average, **alike),
            steps=tuple(self._steps),
            limit=tile_of_chip.memory_bytes,
            tensors=self._biggest(),
            code=tuple(int(count) for count in total(self._code)),
            regions=Regions.of(held, tile_of_chip),
        )

    def _biggest(self) -> tuple[LiveTensor, ...]:
        """The biggest tensors in all, and the biggest ones on the busiest tile of the peak."""
        end = max(len(self._steps) - 1, 0)
        uses = [
            *(self._use(*use) for use in self._uses),
            *(self._use(tensor, first, end) for tensor, first in self._alive.items()),
            *(self._use(tensor, 0, end, "state") for tensor in self._tiles.permanent),
        ]
        uses.sort(key=lambda use: (-use.bytes, use.first, use.name))
        there = sorted(uses, key=lambda use: -use.on_busiest)[: _LISTED // 4]
        listed = {id(use) for use in (*uses[:_LISTED], *there)}
        return tuple(use for use in uses if id(use) in listed)

    def _use(
        self, tensor: Tensor, first: int, last: int, computed: str = "activation"
    ) -> LiveTensor:
        """``tensor``, live from step ``first`` to step ``last``; what it is if ops compute it."""
        type_, step = tensor.type, self._worst[1]
        kind = computed if tensor.kind is TensorKind.ACTIVATION else tensor.kind.value
        there = self._tiles.mapping(tensor).on(self._steps[step].tile) if step >= 0 else 0
        return LiveTensor(
            name=tensor.name,
            type=str(type_),
            kind=kind,
            bytes=type_.size * device_bytes(device_dtype(tensor, self._target)),
            first=first,
            last=last,
            origin=_origin(tensor),
            on_busiest=there if first <= step <= last else 0,
        )


def _origin(tensor: Tensor) -> str:
    ops = (tensor.producer, *tensor.users)
    return next((op.settings.origin for op in ops if op is not None and op.settings.origin), "")
