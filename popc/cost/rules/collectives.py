"""Exchange between replicas, in rings over the links."""

from __future__ import annotations

from typing import Final

from popc.cost.formulas.links import all_reduce_bytes, global_sync, link_cycles
from popc.cost.mapping import device_bytes
from popc.cost.phases import Phase
from popc.cost.rules.common import CostRule, free
from popc.cost.work import Work

__all__ = ["RULES"]


def _ring(work: Work, *, rounds: int, reduces: bool) -> None:
    """``rounds`` of a ring; each moves all parts but a member's own."""
    x, members = work.input(), work.integer("size", 1)
    if members <= 1:
        return
    target = work.machine.target
    bytes_ = x.size * device_bytes(x.dtype)
    moved = all_reduce_bytes(bytes_, members) * rounds // 2
    cycles = link_cycles(target, moved) + rounds * (members - 1) * global_sync(target, members)
    work.phases.append(Phase("links", exchange=cycles))
    if reduces:
        start = len(work.phases)
        work.binary("add", size=-(-x.size // members), dtype=x.dtype)
        work.repeat(start, members - 1)


def _rule(*, rounds: int, reduces: bool) -> CostRule:
    return lambda work: _ring(work, rounds=rounds, reduces=reduces)


RULES: Final[dict[str, CostRule]] = {
    "AllToAll": _rule(rounds=1, reduces=False),
    "AssumeEqualAcrossReplicas": free,
    "ReplicaIndex": free,
    "ReplicaPart": free,
    "ReplicatedAllGather": _rule(rounds=1, reduces=False),
    "ReplicatedAllReduce": _rule(rounds=2, reduces=True),
    "ReplicatedBroadcast": _rule(rounds=1, reduces=False),
    "ReplicatedReduceScatter": _rule(rounds=1, reduces=True),
}
