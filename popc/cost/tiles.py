"""The tiles of a chip on which tensors lie."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from popc.cost.chips import chip_of
from popc.cost.mapping import Mapping as TileMapping
from popc.cost.mapping import linear_mapping
from popc.cost.places import Places
from popc.cost.quarters import device_dtype
from popc.ir import Graph, Op, Tensor, TensorKind
from popc.ops.control import first_capture
from popc.placement import is_main_loop
from popc.schedule import Schedule
from popc.target import Target
from popc_runtime.format import Array, Region

__all__ = ["Tiles"]


class Tiles:
    """The tiles of one chip on which tensors lie."""

    def __init__(
        self, graph: Graph, schedule: Schedule, places: Places, target: Target, chip: int
    ) -> None:
        self.count = target.tiles_per_ipu
        # Tiles that compute come first.
        self._parts = {
            "compute": range(target.compute_tiles),
            "io": range(target.compute_tiles, target.tiles_per_ipu),
        }
        self._target = target
        self._chip = chip
        self._places = places
        self._next = dict.fromkeys(self._parts, 0)
        self._mappings: dict[Tensor, TileMapping] = {}
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

    def mapping(self, tensor: Tensor) -> TileMapping:
        """The mapping of a root."""
        if tensor not in self._mappings:
            type_ = tensor.type
            name = "io" if tensor in self._places.on_io else "compute"
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
        return self._places.home(tensor) == self._chip

    def _permanent(self, graph: Graph, schedule: Schedule) -> list[Tensor]:
        """Variables, and constants and values computed at load that ops of the program read."""
        own = [variable for variable in graph.variables if self.lies_here(variable)]
        places = self._places
        found = dict.fromkeys(tensor for tensor in own if not tensor.off_chip)
        data: set[int] = set()
        for order in schedule.orders.values():
            for op in order:
                for tensor in map(places.root, self._read_here(op)):
                    if tensor in found or not places.lies_for_good(tensor):
                        continue
                    if places.fetches(op, tensor) or places.lies_elsewhere(tensor):
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
            placement = self._places.plan.placements.get(tensor)
            if placement is not None and placement.region is Region.STATE:
                end = placement.offset + tensor.type.nbytes
                if end <= ends.get(placement.offset, -1):
                    continue
                ends[placement.offset] = end
            kept.append(tensor)
        return kept


def _is_weight(constant: Tensor) -> bool:
    """True for what is a parameter of the model: floats, more than one."""
    return constant.type.dtype.is_float and constant.type.rank > 0
