"""Places of the inner elements that Pad repeats in its borders."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from popc_runtime.format.limits import MAX_BORDER_RUNS
from popc_runtime.ground.frozen import frozen

__all__ = ["border_runs"]


def border_runs(mode: str, start: int, stop: int, total: int) -> list[tuple[slice, slice]]:
    """Border ranges of one axis and the interior ranges that they repeat, as (target, source).

    A run goes up (wrap), down (reflect) or stays (edge); pads longer than the interior give
    several runs.

    Raises:
        ValueError: there are more runs than any kernel takes.
    """
    inner = _Inner(mode, start, stop - start)
    sides = (inner.runs(0, start), inner.runs(stop, total))
    runs = [run for side in sides for run in islice(side, MAX_BORDER_RUNS + 1)]
    if len(runs) > MAX_BORDER_RUNS:
        raise ValueError(
            f"borders repeat the {stop - start:,} elements between them more than "
            f"{MAX_BORDER_RUNS:,} times"
        )
    return runs


@frozen
class _Inner:
    """The elements that are repeated."""

    mode: str
    start: int
    size: int

    def runs(self, begin: int, end: int) -> Iterator[tuple[slice, slice]]:
        """The runs of a border from ``begin`` to ``end``, in order."""
        while begin < end:
            first, length, step = self._run(begin)
            length = min(length, end - begin)
            step = step if length > 1 else 1
            yield slice(begin, begin + length), _source(self.start + first, length, step)
            begin += length

    def _run(self, place: int) -> tuple[int, int, int]:
        """An inner element that stands at a place, how many go on from there, and in which step."""
        position, last = place - self.start, self.size - 1
        if self.mode == "edge" or last == 0:
            length = 1 << 63 if position > last else max(-position, 1)
            return min(max(position, 0), last), length, 0
        if self.mode == "wrap":
            there = position % self.size
            return there, self.size - there, 1
        # There and back without repeating the ends: 0 1 2 1 0 1 2 ...
        there = position % (2 * last)
        if there < last:
            return there, self.size - there, 1
        return 2 * last - there, 2 * last - there + 1, -1


def _source(first: int, length: int, step: int) -> slice:
    if step == 0:
        return slice(first, first + 1)
    stop = first + length * step
    return slice(first, stop if stop >= 0 else None, step)
