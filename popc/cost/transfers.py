"""The transfers that share syncs, and the parts of them that hide behind computing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Final

from popc.cost.phases import Cycles, Phase
from popc.cost.pipeline import pipeline_step
from popc.ir import Graph, Op
from popc.schedule import Schedule
from popc.target import Target

__all__ = [
    "TRANSFERS",
    "find_hidden",
    "merged_copies",
    "merged_transfers",
    "op_cycles",
    "times_taken",
]

_REMOTE: Final = ("RemoteLoad", "RemoteStore")
TRANSFERS: Final = ("HostLoad", "HostStore", *_REMOTE)


def merged_transfers(schedule: Schedule, most: int = 0) -> frozenset[Op]:
    """Transfers with the host that directly follow another one, in exchanges of at most ``most``.

    ``most``: bytes; 0 stands for no bound.
    """
    return frozenset(_followers(schedule, _is_transfer, most))


def merged_copies(schedule: Schedule, most: int) -> frozenset[Op]:
    """Copies between chips that directly follow another one, and share its sync.

    ``most``: bytes of copies that share one; 0 stands for none.
    """
    return frozenset(_followers(schedule, _is_copy, most)) if most else frozenset()


def _followers(schedule: Schedule, belongs: Callable[[Op], bool], most: int) -> set[Op]:
    """Ops of a kind that directly follow another one, in rows of at most ``most`` bytes."""
    merged: set[Op] = set()
    for order in schedule.orders.values():
        waiting = 0  # bytes of the exchange that goes on
        for first, second in pairwise(order):
            if not (belongs(first) and belongs(second)):
                waiting = 0
                continue
            waiting = (waiting or _bytes(first)) + _bytes(second)
            if most and waiting > most:
                waiting = _bytes(second)
            else:
                merged.add(second)
    return merged


def _bytes(transfer: Op) -> int:
    moved = transfer.outputs or transfer.present_inputs
    return sum(tensor.type.nbytes for tensor in moved)


def _is_copy(op: Op) -> bool:
    return op.op_type == "IpuCopy"


def _is_transfer(op: Op) -> bool:
    return op.op_type in ("HostLoad", "HostStore") and "synthetic" not in op.attributes


def op_cycles(phases: Sequence[Phase], target: Target) -> Cycles:
    """The cycles of a single run of an op, if nothing of it is hidden."""
    cycles = Cycles()
    for phase in phases:
        cycles = cycles + phase.cycles(target)
    return cycles


def times_taken(op: Op, branch: str, times: int) -> int:
    """The runs of a branch of ``op`` if ``op`` runs ``times``; as many, if that is unknown."""
    taken = op.attributes.get("taken")
    if not isinstance(taken, tuple):
        return times
    then = times * int(taken[0]) // int(taken[1])
    return then if branch == "then_branch" else times - then


def find_hidden(
    graph: Graph,
    schedule: Schedule,
    phases: Mapping[Op, Sequence[Phase]],
    target: Target,
    *,
    merges: bool,
) -> dict[Op, int]:
    """Cycles of each transfer that pass while something else happens; for a single transfer.

    * In an iteration, overlapped transfers run beside everything but other transfers.
    * Between copies that join them, the io tiles of a chip transfer while its others compute.
    * Transfers of several chips from and to streaming memory that directly follow each other run
      at the same time, if they are merged (``merges``): the chip with the most to do counts.
    """
    return _Overlaps(schedule, phases, target, merges=merges).of(graph)


class _Overlaps:
    """Looks through the bodies of loops."""

    def __init__(
        self,
        schedule: Schedule,
        phases: Mapping[Op, Sequence[Phase]],
        target: Target,
        *,
        merges: bool,
    ) -> None:
        self._schedule = schedule
        self._phases = phases
        self._target = target
        self._merges = merges
        self._hidden: dict[Op, int] = {}

    def of(self, graph: Graph) -> dict[Op, int]:
        """The cycles hidden in all loops in ``graph``."""
        self._room(graph)
        return self._hidden

    def _room(self, graph: Graph) -> int:
        """Cycles of ``graph`` in which no transfer is under way, when those in it are hidden."""
        order = self._schedule.orders[graph]
        room = sum(self._op(op) for op in order) - self._beside(graph, order)
        moving = list(self._overlapped(order))
        host = sum(self._host(op) for op in moving)
        for op in moving if host else ():
            self._hidden[op] = self._host(op) * min(host, room) // host
        return max(room - host, 0)

    def _op(self, op: Op) -> int:
        """Cycles of ``op`` and what is nested in it in which others can transfer."""
        trips = op.attributes.get("trip_count", 1)
        times = max(trips, 1) if op.op_type == "Loop" and isinstance(trips, int) else 1
        own = self._device(op)
        if op.op_type == "If" and list(self._overlapped([op])):
            return own
        inner = [self._room(nested) for nested in op.subgraphs.values()]
        return times * (own + max(inner, default=0))

    def _overlapped(self, order: Sequence[Op]) -> Iterator[Op]:
        """Overlapped transfers of a body; they stand in branches."""
        for op in order:
            if op.op_type == "If":
                branch = op.subgraphs["then_branch"]
                yield from (inner for inner in branch.ops if inner.attributes.get("overlapped"))

    def _beside(self, graph: Graph, order: Sequence[Op]) -> int:
        """Hide transfers of ``graph`` by where they stand in its order; behind how many cycles."""
        found: dict[Op, int] = {}
        plain = [op for op in order if pipeline_step(graph, op) is None]
        if self._merges:
            for moves, run in groupby(plain, lambda op: op.op_type in _REMOTE):
                found |= self._of_slower_chips(list(run)) if moves else {}
        on_io: dict[Op, int] = {}
        for alone, stretch in groupby(order, lambda op: _joins(graph, op)):
            on_io |= {} if alone else self._of_io_tiles(list(stretch), found)
        self._hidden |= found | on_io
        return sum(on_io.values())

    def _of_slower_chips(self, run: Sequence[Op]) -> dict[Op, int]:
        """The transfers of all chips but the one with the most to do."""
        totals: dict[int | None, int] = defaultdict(int)
        for op in run:
            totals[op.settings.virtual_graph] += self._host(op)
        slowest = max(totals, key=lambda chip: totals[chip])
        return {op: self._host(op) for op in run if op.settings.virtual_graph != slowest}

    def _of_io_tiles(self, stretch: Sequence[Op], known: Mapping[Op, int]) -> dict[Op, int]:
        """The parts of transfers on io tiles that pass while the other tiles of a chip compute."""
        moving: dict[int | None, list[Op]] = defaultdict(list)
        computing: dict[int | None, int] = defaultdict(int)
        for op in stretch:
            chip = op.settings.virtual_graph
            if op.settings.tile_set == "io" and op.op_type in TRANSFERS:
                if op not in known:
                    moving[chip].append(op)
            elif op.settings.tile_set != "io":
                computing[chip] += self._device(op)
        return {
            op: self._host(op) * min(total, computing[chip]) // total
            for chip, ops in moving.items()
            if (total := sum(map(self._host, ops)))
            for op in ops
        }

    def _host(self, op: Op) -> int:
        return op_cycles(self._phases.get(op, ()), self._target).host

    def _device(self, op: Op) -> int:
        """Cycles in which transfers can hide: the link to the host is free, and tiles are busy."""
        cycles = op_cycles(self._phases.get(op, ()), self._target)
        return cycles.total - cycles.host


def _joins(graph: Graph, op: Op) -> bool:
    """True if all tiles have to come together for ``op``, or what overlaps with it is known."""
    apart = op.subgraphs or op.attributes.get("overlapped")
    return bool(apart) or op.op_type == "IoTileCopy" or pipeline_step(graph, op) is not None
