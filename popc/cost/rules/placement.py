"""Transfers from chip to chip, and from cycle to cycle of a pipeline."""

from __future__ import annotations

from typing import Final

from popc.cost.formulas.links import copy_cycles, global_sync
from popc.cost.formulas.movement import dynamic_slice
from popc.cost.mapping import device_bytes, lanes_of
from popc.cost.phases import Phase
from popc.cost.rules.common import CostRule, free
from popc.cost.work import Work

__all__ = ["RULES"]


def _copy(work: Work) -> None:
    """Over the links; all chips wait for each other before, once for copies in a row."""
    target, type_ = work.machine.target, work.input()
    bytes_ = type_.size * device_bytes(type_.dtype)
    source, destination = (
        work.machine.place(work.integer(end)) for end in ("source", "destination")
    )
    cycles = copy_cycles(target, bytes_, source, destination)
    if work.op not in work.machine.merged:
        cycles += global_sync(target, target.num_ipus)
    buffer = work.machine.share(type_.size, type_.dtype) * device_bytes(type_.dtype)
    work.phases.append(Phase("links", exchange=cycles, temporary=buffer))


def _one_of_row(work: Work) -> None:
    """The place is broadcast; every tile copies its part of one value."""
    row = work.input()
    size = row.size // max(row.shape[0], 1)
    work.receive("place", 4)
    share = work.machine.share(size, row.dtype)
    vector = 4 if lanes_of(row.dtype) == "half" else 2
    work.compute("slice", dynamic_slice(share, 1, vector), "DynamicSlice")


RULES: Final[dict[str, CostRule]] = {
    "Boundary": free,
    "IpuCopy": _copy,
    "Restore": _one_of_row,
    "Stash": _one_of_row,
}
