"""Orders of random graphs beside Kahn's, a plain shift search's, and the best there are."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping

from benchmarks.plain_shift import find_optimum, shift_plainly
from benchmarks.random_orders import FAMILIES, UNIT, make_problem
from popc.options import ScheduleOptions, TieBreaker
from popc.schedule.algorithms import kahn_order
from popc.schedule.choice import Chooser
from popc.schedule.measures import measure
from popc.schedule.problem import OrderingProblem

__all__ = ["measure_families"]

_SMALL, _SEEDS = 16, range(20)


def measure_families(
    only: Collection[str] | None, sizes: Iterable[int]
) -> Iterator[Mapping[str, str]]:
    """A row for each family and size; peaks and sums in allocation units.

    Optima are known of small graphs: figures of twenty of these are added up.
    """
    for family in FAMILIES:
        if only is not None and family not in only:
            continue
        small = [make_problem(family, _SMALL, seed) for seed in _SEEDS]
        yield {"graph": f"{len(small)} x {family} {_SMALL}", **_row(small, is_small=True)}
        for size in sizes:
            row = _row([make_problem(family, size, 0)], is_small=False)
            yield {"graph": f"{family} {size}", **row}


def _row(problems: list[OrderingProblem], *, is_small: bool) -> Mapping[str, str]:
    peaks: dict[str, int] = {}
    sums: dict[str, int] = {}
    seconds = 0.0

    def add(name: str, peak: int, total: int) -> None:
        peaks[name] = peaks.get(name, 0) + peak
        sums[name] = sums.get(name, 0) + total

    for problem in problems:
        start = time.process_time()
        chosen = Chooser(ScheduleOptions()).order(problem).cost
        seconds += time.process_time() - start
        add("popc", chosen.peak, chosen.total)
        kahn = kahn_order(problem, TieBreaker.GREEDY)
        for name, order in (("kahn", kahn), ("shift", shift_plainly(problem, kahn))):
            cost = measure(problem, order)
            add(name, cost.peak, cost.total)
        if is_small:
            add("optimum", *find_optimum(problem))
    return {
        **{f"{name} peak": f"{peak / UNIT:,.0f}" for name, peak in peaks.items()},
        **{f"{name} sum": f"{total / UNIT:,.0f}" for name, total in sums.items()},
        "popc s": f"{seconds:.2f}",
    }
