"""Bytes of every tile, step by step.

Views, ops that work in place and joined Concats share memory as the memory plan says; what lies
there is mapped linearly, each tensor beginning on the tile where the last one ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from popc.cost.code import measure_code, total
from popc.cost.codesize import CodeUse
from popc.cost.mapping import device_bytes
from popc.cost.phases import Phase
from popc.cost.places import Places
from popc.cost.quarters import device_dtype
from popc.cost.report import Categories, LiveStep, LiveTensor, MemoryReport, Regions
from popc.cost.tiles import Tiles
from popc.ir import Graph, Op, Tensor, TensorKind
from popc.schedule import Schedule
from popc.target import Target
from popc_runtime.format import Array
from popc_runtime.ground.frozen import frozen

__all__ = ["MemoryWalk"]

# Tensors that a report lists; the memory of the others does not matter to anybody.
_LISTED = 256


@frozen
class _Held:
    """The bytes on every tile while nothing begins or ends.

    Attributes:
        totals: Of every tile.
        tile: The first of the busiest ones.
        activations: Bytes of these in all.
    """

    totals: Array
    tile: int
    activations: int

    @classmethod
    def of(cls, base: Array, live: Array) -> Self:
        """The sums of what lies there for good, and of what is alive."""
        totals = base + live
        return cls(totals, int(np.argmax(totals)), int(live.sum()))

    def busiest(self, part: slice, temporary: int) -> tuple[int, int]:
        """The first of the busiest tiles, and its bytes, with more on each of some tiles."""
        totals, tile = self.totals, self.tile
        if temporary and (part.start > 0 or part.stop < len(totals)):
            totals = totals.copy()
            totals[part] += temporary
            tile = int(np.argmax(totals))
            return tile, int(totals[tile])
        return tile, int(totals[tile]) + temporary


class MemoryWalk:
    """One pass over the program in order of execution; bodies of loops are walked once.

    Attributes:
        over: Bytes that the busiest tile lacks while an op of this chip runs.
    """

    def __init__(
        self,
        graph: Graph,
        schedule: Schedule,
        places: Places,
        phases: Mapping[Op, Sequence[Phase]],
        uses: Sequence[CodeUse],
        target: Target,
        chip: int = 0,
        *,
        shares: bool = False,
    ) -> None:
        """Walk ``graph`` for one of the chips that run it.

        Args:
            graph: The top graph.
            schedule: In which order ops run.
            places: Who shares memory.
            phases: Of every op.
            uses: Steps of every op of this chip, which need code on the tiles that take part.
            target: What kind of chips they are, and how many.
            chip: The number of this one.
            shares: Whether equal transfers of several weights share their code.
        """
        self.over: dict[Op, int] = {}
        self._target = target
        self._places = places
        self._tiles = Tiles(graph, schedule, places, target, chip)
        self._phases = phases
        self._code = measure_code(graph, uses, target, chip, shares=shares)
        self._base: Array = self._tiles.always + total(self._code)
        self._base += target.tile.stack_bytes + self._tiles.gaps
        self._live: Array = np.zeros(self._tiles.count, np.int64)
        self._alive: dict[Tensor, int] = {}
        self._owners: dict[object, tuple[Tensor, int]] = {}  # whose mapping counts, users
        self._uses: list[tuple[Tensor, int, int]] = []
        self._steps: list[LiveStep] = []
        self._worst: tuple[int, int, Array, Array] = (-1, -1, self._live, self._live)
        self._passing = "temporary"  # the category of that at the worst step
        self._held: _Held | None = None  # until something begins or ends
        self._run(graph, schedule)

    def _run(self, graph: Graph, schedule: Schedule) -> None:
        """Walk ``graph``; operands of ops with subgraphs stay alive while they run."""
        order = schedule.orders[graph]
        spans, roots = self._places.spans(graph, order)
        for tensor in graph.inputs if graph.name == "main" else ():
            root = self._places.root(tensor)
            if self._places.is_passing(root):
                self._begin(root)
        for op, span in zip(order, spans, strict=True):
            for root in span.begin:
                self._begin(root)
            self._record(op)
            for nested in op.subgraphs.values():
                self._run(nested, schedule)
            for root in span.end:
                self._end(root)
        for root in roots if graph.name != "main" else ():
            self._end(root)  # results of the op around it take over what the graph gives

    def _begin(self, root: Tensor) -> None:
        if root in self._alive or not self._tiles.lies_here(root):
            return
        self._alive[root] = len(self._steps)
        memory = self._places.memory(root)
        owner, users = self._owners.get(memory, (root, 0))
        self._owners[memory] = owner, users + 1
        if users == 0:
            self._tiles.mapping(root).add_to(self._live)
            self._held = None

    def _end(self, root: Tensor) -> None:
        if root not in self._alive:
            return
        self._uses.append((root, self._alive.pop(root), len(self._steps) - 1))
        memory = self._places.memory(root)
        owner, users = self._owners.pop(memory)
        if users > 1:
            self._owners[memory] = owner, users - 1
        else:
            self._tiles.mapping(owner).add_to(self._live, -1)
            self._held = None

    def _record(self, op: Op) -> None:
        here = self._tiles.runs_here(op)
        phases = self._phases.get(op, ()) if here else ()
        temporary = max((phase.temporary for phase in phases), default=0)
        self._held = held = self._held or _Held.of(self._base, self._live)
        part = self._tiles.part(op)
        tile, busiest = held.busiest(part, temporary)
        if here and busiest > self._target.tile.memory_bytes:
            self.over[op] = busiest - self._target.tile.memory_bytes
        name = op.outputs[0].name if op.outputs else op.op_type
        self._steps.append(LiveStep(name, held.activations, temporary, busiest, tile))
        if busiest > self._worst[0]:
            self._passing = "message_buffers" if op.op_type == "IpuCopy" else "temporary"
            spread: Array = np.zeros(self._tiles.count, np.int64)
            spread[part] = temporary
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
