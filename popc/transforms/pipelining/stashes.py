"""The way of values from the cycle in which they are computed to those in which they are read."""

from __future__ import annotations

from typing import NamedTuple

from popc.ir import Tensor
from popc.transforms.pipelining.stages import StagedLoop
from popc_runtime.ground.frozen import frozen

__all__ = ["Stash", "Stashes", "find_stashes"]


class Stash(NamedTuple):
    """A row of values of one tensor, each of another micro-batch.

    Attributes:
        stage: The stage that puts values in; ``None``: they are put in as they are copied.
        size: How many there are.
        arrives: Whether the stage finds the value among those of the cycle before, rather than
            in its own.
    """

    stage: int | None
    size: int
    arrives: bool


@frozen
class Stashes:
    """The values kept from cycle to cycle.

    Attributes:
        latest: Tensors of which the next cycle reads the value.
        stashes: Tensors of which later cycles read values.
    """

    latest: tuple[Tensor, ...]
    stashes: dict[Tensor, Stash]


def find_stashes(staged: StagedLoop) -> Stashes:
    """Find the values that have to be kept.

    A value that is read one cycle later is handed on.  One that waits longer is stashed, by the
    stage that computes it or, if it comes from another chip, by the first one that reads it: then
    the stash has as many places as there are cycles from that stage to the last reader, both
    counted.  What comes from another chip and waits from the beginning is stashed there at once.
    """
    timing = staged.timing
    latest: list[Tensor] = []
    stashes: dict[Tensor, Stash] = {}
    for tensor, made in staged.made_in.items():
        delays = {stage: timing.delay(made, stage) for stage in staged.readers(tensor)}
        most = max(delays.values(), default=0)
        if most <= 0:
            continue
        copied = tensor.producer is not None and tensor.producer.op_type == "IpuCopy"
        start = min(delays) if copied else made
        wait = delays.get(start, 0)
        if most == 1 or wait == 1:
            latest.append(tensor)
        if most > 1:
            if wait > 1:
                stashes[tensor] = Stash(None, most + 1, arrives=False)
            else:
                stashes[tensor] = Stash(start, most - wait + 1, arrives=wait == 1)
    return Stashes(tuple(latest), stashes)
