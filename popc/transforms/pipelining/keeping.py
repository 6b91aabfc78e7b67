"""How values get from the cycle in which they are computed to those in which they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from popc.ir import Tensor
from popc.transforms.pipelining.stages import StagedLoop

__all__ = ["Keeping", "Stash", "find_keeping"]


class Stash(NamedTuple):
    """A row of values of one tensor, each of another micro-batch.

    Attributes:
        stage: The stage that puts values in.
        size: How many there are.
        arrives: Whether the stage finds the value among those of the cycle before, rather than
            computes it.
    """

    stage: int
    size: int
    arrives: bool


@dataclass(frozen=True, slots=True)
class Keeping:
    """What is kept from cycle to cycle.

    Attributes:
        latest: Tensors of which the next cycle reads the value.
        stashes: Tensors of which later cycles read values.
    """

    latest: tuple[Tensor, ...]
    stashes: dict[Tensor, Stash]


def find_keeping(staged: StagedLoop) -> Keeping:
    """What has to be kept.

    A value that is read one cycle later is handed on.  One that waits longer is stashed, by the
    stage that computes it or, if it comes from another chip, by the first one that reads it: then
    the stash has as many places as there are cycles from that stage to the last reader, both
    counted.
    """
    timing = staged.timing
    latest: list[Tensor] = []
    stashes: dict[Tensor, Stash] = {}
    for tensor, made in staged.made_in.items():
        delays = {stage: timing.delay(made, stage) for stage in staged.readers(tensor)}
        most = max(delays.values(), default=0)
        if most <= 0:
            continue
        first = min(stage for stage, delay in delays.items() if delay > 0)
        copied = tensor.producer is not None and tensor.producer.op_type == "IpuCopy"
        handed_on = most == 1 or (copied and delays[first] == 1)
        if handed_on:
            latest.append(tensor)
        if most > 1:
            start = first if handed_on else made
            size = most - (1 if handed_on else 0) + 1
            stashes[tensor] = Stash(start, size, handed_on)
    return Keeping(tuple(latest), stashes)
