"""Transfers of the next part of a batch while the current one is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    what is copied from there and stored as late as it can.  The last copy to the compute tiles of
    a part comes before the first copy from there of the part before; with ``kind``
    OVERLAP_ON_COMPUTE the last load of a part also comes before anything of the part before is
    computed.
    """

    kind: PartsSchedule

    def rank(self, op: Op) -> int:
        """Ops of a part with lower ranks come first where they can."""
        if op.op_type == "IoTileCopy":
            return _COPY_IN if op.attributes.get("destination") == "compute" else _COPY_OUT
        return _TRANSFERS.get(op.op_type, _COMPUTE)

    def is_transfer(self, op: Op) -> bool:
        """True if ``op`` may leave its part."""
        return self.rank(op) != _COMPUTE

    def require(self, sequencer: Sequencer, chains: Mapping[Position, Sequence[Op]]) -> None:
        """Let the transfers of each part run ahead of the part before."""
        for position, ops in chains.items():
            following = chains.get(Position(position.level, position.phase + 1), ())
            _ahead(sequencer, _last(following, self, _COPY_IN), _first(ops, self, _COPY_OUT))
            if self.kind is PartsSchedule.OVERLAP_ON_COMPUTE:
                _ahead(sequencer, _last(following, self, _LOAD), _first(ops, self, _COMPUTE))


def _ahead(sequencer: Sequencer, first: Op | None, second: Op | None) -> None:
    """Let ``first`` run before ``second``, unless it has to wait for it."""
    if first is not None and second is not None:
        sequencer.require(first, second, tied=True)


_TRANSFERS: Final = {"RemoteLoad": _LOAD, "RemoteStore": _STORE}


def _first(ops: Sequence[Op], overlap: Overlap, rank: int) -> Op | None:
    return next((op for op in ops if overlap.rank(op) == rank), None)


def _last(ops: Sequence[Op], overlap: Overlap, rank: int) -> Op | None:
    return _first(tuple(reversed(ops)), overlap, rank)
