"""The schedules of all algorithms, side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from popc.ir import Graph
from popc.options import Algorithm, ScheduleOptions, TieBreaker
from popc.schedule.liveness import measure_liveness
from popc.schedule.schedule import build_schedule

__all__ = ["AlgorithmResult", "compare_algorithms"]


class AlgorithmResult(NamedTuple):
    """Peak and sum of the live bytes of a program when all its graphs are ordered one way."""

    name: str
    peak: int
    total: int


def compare_algorithms(
    graph: Graph, options: ScheduleOptions | None = None
) -> list[AlgorithmResult]:
    """The result of every algorithm for ``graph`` by itself, without any search."""
    options = replace(options or ScheduleOptions(), swap_limit_scheduler=0, scheduler_work_limit=0)
    tie_breakers = [
        (
            f"kahn {breaker}",
            replace(options, scheduling_algorithm=Algorithm.KAHN, kahn_tie_breaker=breaker),
        )
        for breaker in TieBreaker
    ]
    others = [
        (algorithm.value, replace(options, scheduling_algorithm=algorithm))
        for algorithm in Algorithm
        if algorithm not in (Algorithm.CHOOSE_BEST, Algorithm.KAHN)
    ]
    standings: list[AlgorithmResult] = []
    for name, chosen in (*tie_breakers, *others):
        liveness = measure_liveness(graph, build_schedule(graph, chosen).orders)
        standings.append(AlgorithmResult(name, liveness.peak, liveness.total))
    return standings
