"""The time when each op begins."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import groupby

from popc.cost import OpCost

__all__ = ["starts_of"]


def starts_of(ops: Sequence[OpCost]) -> list[int]:
    """The cycle at which each op begins, all its runs following one another.

    In a step each chip runs its ops one after the other, and the next step begins when the slowest
    chip is done.  Without steps, ops follow each other.
    """
    starts: list[int] = []
    clock = 0
    for _, group in groupby(ops, key=lambda op: op.step and op.step[0]):
        part = list(group)
        began, clock = _of_part(part, clock)
        starts += began
    return starts


def _of_part(ops: Sequence[OpCost], clock: int) -> tuple[list[int], int]:
    """The starts of ops between a pipeline's, of its fill, of its loop or its flush; the end."""
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
