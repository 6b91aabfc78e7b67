"""Timing of two engines in one process without one disturbing the other.

They take turns.  Before its turn an engine rests until the other's threads have gone to sleep
(those of OpenBLAS and of onnxruntime spin for a while, and take a core from whoever runs next), and
then warms up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean, median

__all__ = ["Times", "compare_times", "geometric_mean", "seconds_of_turn"]

_REST = 0.03  # seconds


def seconds_of_turn(turn: Callable[[], object], seconds: float, at_least: int = 3) -> list[float]:
    """The seconds that each call took during one turn."""
    time.sleep(_REST)
    turn()
    turn()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < at_least or time.perf_counter() < end:
        start = time.perf_counter()
        turn()
        times.append(time.perf_counter() - start)
    return times


@dataclass(frozen=True)
class Times:
    """Seconds per call; the best one is what other programs disturb least."""

    median: float
    best: float


def compare_times(
    turns: Sequence[Callable[[], object]], *, rounds: int, seconds: float
) -> list[Times]:
    """The times of each of ``turns``, over all rounds."""
    times: list[list[float]] = [[] for _ in turns]
    for _ in range(rounds):
        for turn, collected in zip(turns, times, strict=True):
            collected.extend(seconds_of_turn(turn, seconds))
    return [Times(median(collected), min(collected)) for collected in times]


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of ratios."""
    return exp(fmean(map(log, values)))
