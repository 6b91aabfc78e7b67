"""Transfers of the next part of a batch while the current one is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from popc.ir import Op
from popc.ops.sequencer import Sequencer
from popc.options import PartsSchedule
from popc.transforms.batch_serialization.levels import Position
from popc_runtime.ground.frozen import frozen

__all__ = ["Overlap"]

_LOAD, _COPY_IN, _COMPUTE, _COPY_OUT, _STORE = range(5)


@frozen
class Overlap:
    """The places of transfers of parts.

    Within a part what is loaded, and copied to the tiles that compute, comes as early as it can,
    what is copied from there and stored as late as it can.  Copies between both sets of tiles,
    for which all wait, stand together: behind what a part computes, those to the compute tiles for
    the next one, then those of its own results.  From there to the next such place one part is
    computed, the one before stored, the next loaded; with ``kind`` OVERLAP_ON_COMPUTE, loaded
    before anything is computed.

    What a part stores and loads again itself stays where the order of the part has it: only what
    it computes in between can pass meanwhile.
    """

    kind: PartsSchedule
    positions: Mapping[Op, Position]

    def rank(self, op: Op) -> int:
        """Ops of a part with lower ranks come first where they can."""
        if self._comes_back(op):
            return _COMPUTE
        if op.op_type == "IoTileCopy":
            return _COPY_IN if op.attributes.get("destination") == "compute" else _COPY_OUT
        return _TRANSFERS.get(op.op_type, _COMPUTE)

    def _comes_back(self, op: Op) -> bool:
        """True if ``op`` moves something that its own part stores, and then loads."""
        back, forth = self._neighbours(op, "RemoteLoad"), self._neighbours(op, "RemoteStore")
        own = self.positions.get(op)
        return any(
            self.positions.get(store) == own == self.positions.get(load)
            for load in back
            for tensor in load.present_inputs
            if (store := tensor.producer) is not None and store.op_type == "RemoteStore"
        ) or any(
            self.positions.get(store) == own == self.positions.get(load)
            for store in forth
            for tensor in store.outputs
            for load in tensor.uses
            if load.op_type == "RemoteLoad"
        )

    def _neighbours(self, op: Op, op_type: str) -> list[Op]:
        """``op`` if it is an ``op_type``; of a copy between sets of tiles, those beside it."""
        if op.op_type != "IoTileCopy":
            return [op] if op.op_type == op_type else []
        producers = [tensor.producer for tensor in op.present_inputs if tensor.producer is not None]
        beside = [*producers, *(user for tensor in op.outputs for user in tensor.uses)]
        return [other for other in beside if other.op_type == op_type]

    def is_transfer(self, op: Op) -> bool:
        """True if ``op`` may leave its part."""
        return self.rank(op) != _COMPUTE

    def require(self, sequencer: Sequencer, chains: Mapping[Position, Sequence[Op]]) -> None:
        """Let the transfers of each part run ahead of the part before, as far as they can."""
        ranked = [self._ranked(chains[position]) for position in sorted(chains)]
        for before, (now, then) in zip([None, *ranked], pairwise(ranked), strict=False):
            _ahead(sequencer, now[_COMPUTE][-1:], then[_COPY_IN][:1])
            _ahead(sequencer, then[_COPY_IN][-1:], now[_COPY_OUT][:1])
            _ahead(sequencer, now[_COPY_OUT][-1:], now[_STORE][:1])
            _ahead(sequencer, now[_STORE][-1:], then[_COPY_OUT][:1])
            _ahead(sequencer, now[_COPY_IN][-1:], then[_LOAD][:1])
            _ahead(sequencer, before[_COPY_OUT][-1:] if before else (), then[_LOAD][:1])
            is_early = self.kind is PartsSchedule.OVERLAP_ON_COMPUTE
            computed = now[_COMPUTE][:1] if is_early else now[_COMPUTE][-1:]
            _ahead(sequencer, then[_LOAD][-1:], computed)

    def _ranked(self, ops: Sequence[Op]) -> list[list[Op]]:
        return [[op for op in ops if self.rank(op) == rank] for rank in range(_STORE + 1)]


def _ahead(sequencer: Sequencer, first: Sequence[Op], second: Sequence[Op]) -> None:
    """Let ``first`` run before ``second``, if there are both, unless it has to wait for it."""
    for one, other in zip(first, second, strict=False):
        sequencer.require(one, other, tied=True)


_TRANSFERS: Final = {"RemoteLoad": _LOAD, "RemoteStore": _STORE}
