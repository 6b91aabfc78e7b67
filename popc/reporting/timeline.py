"""The time when each op begins."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import groupby

from popc.cost import OpCost

__all__ = ["starts_of"]


def starts_of(ops: Sequence[OpCost]) -> list[int]:
    """The cycle at which each op begins, all its runs following one another.

    Ops run one after the other, but for the steps of a pipeline: there each chip runs its own, and
    the next step begins when the slowest chip is done.
    """
    starts: list[int] = []
    clock = 0
    for _, group in groupby(ops, key=lambda op: op.step and op.step[0]):
        part = list(group)
        began, clock = _of_part(part, clock)
        starts += began
    return starts


def _of_part(ops: Sequence[OpCost], clock: int) -> tuple[list[int], int]:
    """The starts of ops outside a pipeline, of its fill, of its loop or its flush; and the end."""
    steps: defaultdict[int, Counter[int]] = defaultdict(Counter)
    offsets: list[tuple[int, int]] = []
    for number, op in enumerate(ops):
        step = op.step[1] if op.step else number
        offsets.append((step, steps[step][op.ipu]))
        steps[step][op.ipu] += op.cycles.total
    begins: dict[int, int] = {}
    for step in sorted(steps):
        begins[step] = clock
        clock += max(steps[step].values(), default=0)
    return [begins[step] + offset for step, offset in offsets], clock
