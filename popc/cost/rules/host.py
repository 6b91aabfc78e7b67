"""Transfers between host and device, and between the tiles that make them and the others."""

from __future__ import annotations

from typing import Final

from popc.cost.formulas.numbers import ceil_div
from popc.cost.mapping import device_bytes
from popc.cost.phases import Phase
from popc.cost.rules.common import CostRule
from popc.cost.work import Work
from popc.ir import TensorType

__all__ = ["RULES", "transfer"]

# A host that has nothing ready looks every 100 us whether it is asked for something (the polling
# interval of the C600's driver).
_POLL_SECONDS: Final = 100e-6


def _load(work: Work) -> None:
    wait = 0 if work.machine.settings.prefetch else _POLL_SECONDS
    transfer(work, work.result(), wait)


def _store(work: Work) -> None:
    transfer(work, work.input(), 0)


def transfer(work: Work, type_: TensorType, wait: float) -> None:
    """Bytes over the host's links; sync and wait come once for transfers in a row."""
    if "synthetic" in work.op.attributes:
        return
    target = work.machine.target
    cycles = int(type_.size * device_bytes(type_.dtype) / target.host_bytes_per_cycle)
    if work.op not in work.machine.merged:
        cycles += 2 * target.exchange.global_sync_cycles + int(wait * target.tile.clock_hz)
    work.phases.append(Phase("host", host=cycles))


def _copy(work: Work) -> None:
    """The few io tiles are what it waits for: each sends, or receives, its part."""
    target, type_ = work.machine.target, work.input()
    few = min(target.num_io_tiles, target.compute_tiles)
    bytes_ = ceil_div(type_.size * device_bytes(type_.dtype), max(few, 1))
    sources = ceil_div(max(target.num_io_tiles, target.compute_tiles), max(few, 1))
    work.receive("io tiles", bytes_, sources=min(sources, ceil_div(bytes_, 8)))


RULES: Final[dict[str, CostRule]] = {
    "HostLoad": _load,
    "HostStore": _store,
    "IoTileCopy": _copy,
}
