"""Copies between the tiles that transfer and those that compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import ClassVar, Self

from popc.ir import Graph, Op, OpSettings, Tensor
from popc.ir.attributes import text
from popc.ops.build import build
from popc.ops.streaming import find_remote
from popc.placement import chip_of_results
from popc.transforms.base import Pass, PassOutcome
from popc.transforms.context import PassContext
from popc.transforms.streaming.phases import BINS
from popc_runtime.errors import OptionError
from popc_runtime.ground.frozen import frozen

__all__ = ["IoTileCopies"]


@frozen
class IoTileCopies(Pass):
    """Results of one set of tiles are copied, once, before another set reads them.

    Before::

        %x = HostLoad() stream='x'  [tile_set=io]
        %y = Relu(%x)

    After::

        %x = HostLoad() stream='x'  [tile_set=io]
        %x_compute = IoTileCopy(%x) destination='compute' source='io'
        %y = Relu(%x_compute)

    Constants are where they are needed, and what lies in streaming memory is on no tiles.
    Variables, and what graphs are given and give back, lie on the tiles that compute.

    What io tiles would hold beyond their memory is not placed on them, chip by chip, and does not
    overlap with computing.

    Attributes:
        num_io_tiles: How many tiles of a chip there are for transfers.
        room: The bytes of data that those of one chip may hold; ``None``: any number.
    """

    name: ClassVar[str] = "io_tile_copies"
    optional: ClassVar[bool] = False
    num_io_tiles: int
    room: int | None = None

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        options = context.options
        tiles, proportion = options.num_io_tiles, options.io_tile_memory_proportion
        if not (tiles and proportion):
            return cls(tiles)
        from popc.target import find_target

        memory = find_target(options.target).tile.memory_bytes
        return cls(tiles, int(tiles * memory * proportion))

    def run(self, graph: Graph) -> PassOutcome:
        """Move what has no room, and insert copies; how many."""
        graphs = list(graph.walk())
        on_io = [op for nested in graphs for op in nested.ops if _is_on_io(op)]
        self._require_tiles(on_io)
        notes = tuple(self._moved(on_io))
        if not on_io and not any(op.op_type == "IoTileCopy" for g in graphs for op in g.ops):
            return PassOutcome(0)
        remote = find_remote(graph)
        copies = sum(_copy_between_sets(nested, remote) for nested in graphs)
        return PassOutcome(copies + len(notes), notes=notes)

    def _moved(self, ops: Sequence[Op]) -> Iterator[str]:
        """Place the ops of chips that would hold too much elsewhere; says so for each chip."""
        chips: dict[int | None, list[Op]] = {}
        for op in ops:
            chips.setdefault(op.settings.virtual_graph, []).append(op)
        for chip, group in chips.items():
            needed = sum(map(_bytes_held, group))
            if self.room is None or needed <= self.room:
                continue
            for op in group:
                op.settings = replace(op.settings, tile_set="compute")
                op.attributes.pop("exchange", None)
            where = "io tiles" if chip is None else f"io tiles of IPU {chip}"
            yield (
                f"{where} would hold {needed:,} bytes, but io_tile_memory_proportion lets them "
                f"hold {self.room:,}: {len(group)} transfers run on the tiles that compute"
            )

    def _require_tiles(self, ops: list[Op]) -> None:
        if ops and not self.num_io_tiles:
            names = dict.fromkeys(op.settings.origin for op in ops)
            raise OptionError(
                f"{', '.join(names)}: placed on io tiles, but num_io_tiles is 0",
                subject="num_io_tiles",
                hint="set num_io_tiles to 32 or more, an even number, or leave out tile_set",
            )

    def problems(self, graph: Graph) -> list[str]:
        """Operands on other tiles than the op that reads them."""
        remote = find_remote(graph)
        return [
            f"{op!r} reads {tensor!r}, which lies on other tiles"
            for nested in graph.walk()
            for op in nested.ops
            for tensor in op.present_inputs
            if op.op_type != "IoTileCopy"
            and not _is_anywhere(tensor, remote)
            and _set_of(tensor) != _wanted_by(op)
        ]


def _is_on_io(op: Op) -> bool:
    return op.settings.tile_set == "io" and not op.subgraphs


def _bytes_held(op: Op) -> int:
    """The bytes of what a transfer holds: two samples, if one is moved while another is used."""
    moved = sum(tensor.type.nbytes for tensor in op.outputs or op.present_inputs)
    return 2 * moved if "exchange" in op.attributes else moved


def _is_anywhere(tensor: Tensor, remote: AbstractSet[Tensor]) -> bool:
    """True if a tensor lies on no tiles, or on those that want it."""
    return tensor.is_constant or tensor in remote


def _wanted_by(op: Op) -> str:
    return "compute" if op.subgraphs else op.settings.tile_set


def _set_of(tensor: Tensor) -> str:
    op = tensor.producer
    if op is None:
        return "compute"
    return text(op.attributes, "destination") if op.op_type == "IoTileCopy" else _wanted_by(op)


def _copy_between_sets(graph: Graph, remote: AbstractSet[Tensor]) -> int:
    copies: dict[tuple[Tensor, str], Tensor] = {}
    for op in graph.topological():
        for index, tensor in enumerate(op.inputs):
            if tensor is None or _is_anywhere(tensor, remote):
                continue
            if _set_of(tensor) == _wanted_by(op):
                continue
            key = (tensor, _wanted_by(op))
            if key not in copies:
                copies[key] = _copied(graph, *key, op)
            graph.set_input(op, index, copies[key])
    for index, tensor in enumerate(graph.outputs):
        if not _is_anywhere(tensor, remote) and _set_of(tensor) != "compute":
            key = (tensor, "compute")
            if key not in copies:
                copies[key] = _copied(graph, *key, None)
            graph.outputs[index] = copies[key]
    return len(copies)


def _copied(graph: Graph, tensor: Tensor, destination: str, reader: Op | None) -> Tensor:
    """``tensor`` on other tiles; the copy belongs to the part of the step that makes it."""
    source = tensor.producer or reader
    assert source is not None, tensor
    chip = chip_of_results(source) if tensor.producer else source.settings.virtual_graph
    settings = replace(
        source.settings, tile_set="io", bins=(), origin=tensor.name, virtual_graph=chip
    )
    settings = _when_read(tensor, destination, settings)
    return build(
        graph,
        "IoTileCopy",
        [tensor],
        {"source": _set_of(tensor), "destination": destination},
        output_names=[f"{tensor.name}_{destination}"],
        settings=settings,
    ).output


def _when_read(tensor: Tensor, destination: str, settings: OpSettings) -> OpSettings:
    """``settings`` of a copy; what is fetched an execution phase early is copied when it is read.

    A copy joins both sets of tiles: right behind the transfer, it would keep the others waiting for
    what is to pass while they compute.
    """
    readers = [user.settings for user in tensor.uses if _wanted_by(user) == destination]
    phases = [reader.execution_phase for reader in readers]
    known = [phase for phase in phases if phase is not None]
    early = settings.execution_phase
    if early is None or not known or len(known) < len(phases) or min(known) <= early:
        return settings
    first = readers[phases.index(min(known))]
    return replace(
        settings,
        execution_phase=first.execution_phase,
        schedule_priority=first.schedule_priority,
        bins=tuple(bin_ for bin_ in first.bins if bin_[0] == BINS),
    )
