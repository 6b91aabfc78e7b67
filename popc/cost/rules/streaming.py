"""Transfers from and to streaming memory: how much is moved, and that all tiles wait for it."""

from __future__ import annotations

from typing import Final

from popc.cost.mapping import device_bytes
from popc.cost.phases import Phase
from popc.cost.rules.common import CostRule
from popc.cost.work import Work

__all__ = ["RULES"]


def _moved(work: Work) -> None:
    if work.op.attributes.get("at_load"):  # not part of a run
        return
    target = work.machine.target
    bytes_ = sum(output.type.size * device_bytes(output.type.dtype) for output in work.op.outputs)
    speed = target.host.streaming_bytes_per_second or target.host.bytes_per_second
    cycles = int(bytes_ * target.tile.clock_hz / speed) + 2 * target.exchange.global_sync_cycles
    work.phases.append(Phase("streaming", host=cycles))


RULES: Final[dict[str, CostRule]] = {"RemoteLoad": _moved, "RemoteStore": _moved}
