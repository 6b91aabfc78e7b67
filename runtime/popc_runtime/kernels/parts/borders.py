"""Places of the inner elements that Pad repeats in its borders."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from popc_runtime.ground.hints import Final

__all__ = ["border_runs"]


def border_runs(mode: str, start: int, stop: int, total: int) -> list[tuple[slice, slice]]:
    """Border ranges of one axis and the interior ranges that they repeat, as (target, source).

    A run goes up (wrap), down (reflect) or stays (edge); pads longer than the interior give
    several runs.
    """
    repeated, size = _REPEATED[mode], stop - start
    runs: list[tuple[slice, slice]] = []
    for begin, end in ((0, start), (stop, total)):
        indices = [start + repeated(place - start, size) for place in range(begin, end)]
        done = 0
        while done < len(indices):
            length, step = _run_length(indices[done:])
            target = slice(begin + done, begin + done + length)
            runs.append((target, _source(indices[done], length, step)))
            done += length
    return runs


def _run_length(indices: Sequence[int]) -> tuple[int, int]:
    """Length of the leading run of constant step, and the step."""
    if len(indices) == 1:
        return 1, 1
    step = indices[1] - indices[0]
    length = 2
    while length < len(indices) and indices[length] - indices[length - 1] == step:
        length += 1
    return length, step


def _source(first: int, length: int, step: int) -> slice:
    if step == 0:
        return slice(first, first + 1)
    stop = first + length * step
    return slice(first, stop if stop >= 0 else None, step)


def _edge(position: int, size: int) -> int:
    return min(max(position, 0), size - 1)


def _reflect(position: int, size: int) -> int:
    """There and back without repeating the ends: 0 1 2 1 0 1 2 ..."""
    period = max(2 * (size - 1), 1)
    there = position % period
    return min(there, period - there)


def _wrap(position: int, size: int) -> int:
    return position % size


# (position relative to the interior, size of the interior) -> the element that stands there
_REPEATED: Final[dict[str, Callable[[int, int], int]]] = {
    "edge": _edge,
    "reflect": _reflect,
    "wrap": _wrap,
}
