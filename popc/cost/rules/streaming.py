"""Transfers from and to streaming memory: how much is moved, and that all tiles wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.cost.mapping import device_bytes
from popc.cost.phases import Phase
from popc.cost.rules.common import CostRule
from popc.cost.work import Work
from popc.ir import TensorType

__all__ = ["RULES"]


def _moved(work: Work) -> None:
    if work.op.attributes.get("at_load"):  # not part of a run
        return
    _move(work, [output.type for output in work.op.outputs])


def _rows_read(work: Work) -> None:
    """Row numbers to the host, the rows back."""
    _move(work, [work.input(1), work.result()])


def _rows_updated(work: Work) -> None:
    """Values add up on the chip, then rows are fetched, changed and stored."""
    indices, values = work.input(1), work.input(2)
    count = max(indices.size, 1)
    length = max(values.size // count, 1)
    work.scatter(count, length, count, values.dtype)
    _move(work, [indices, values])
    _move(work, [values])


def _move(work: Work, types: Sequence[TensorType]) -> None:
    target = work.machine.target
    bytes_ = sum(type_.size * device_bytes(type_.dtype) for type_ in types)
    speed = target.host.streaming_bytes_per_second or target.host.bytes_per_second
    cycles = int(bytes_ * target.tile.clock_hz / speed) + 2 * target.exchange.global_sync_cycles
    work.phases.append(Phase("streaming", host=cycles))


RULES: Final[dict[str, CostRule]] = {
    "RemoteGather": _rows_read,
    "RemoteLoad": _moved,
    "RemoteScatterAdd": _rows_updated,
    "RemoteStore": _moved,
}
