"""Random graphs of many shapes: no simple search finds an order with a lower peak."""

from __future__ import annotations

import pytest

from benchmarks.plain_shift import shift_plainly
from benchmarks.random_orders import FAMILIES, make_problem
from popc.options import ScheduleOptions, TieBreaker
from popc.schedule.algorithms import kahn_order
from popc.schedule.choose import Chooser
from popc.schedule.measures import measure
from tests.support.random_problems import is_legal


@pytest.mark.parametrize("family", list(FAMILIES))
def test_no_plain_search_has_a_lower_peak(family: str) -> None:
    problem = make_problem(family, 70, seed=7)
    found = Chooser(ScheduleOptions()).order(problem)
    assert is_legal(problem, found.order)
    orders = [kahn_order(problem, breaker) for breaker in TieBreaker]
    orders += [shift_plainly(problem, order) for order in orders]
    lowest = min(measure(problem, order).peak for order in orders)
    assert found.lower <= found.cost.peak <= lowest


@pytest.mark.parametrize(
    ("family", "count", "gap"),
    [
        ("layered", 500, 1.0),
        ("scattered", 500, 1.0),
        ("series_parallel", 500, 1.2),
        ("tree", 500, 1.2),
        ("unrolled", 500, 1.0),
        ("fan_out", 500, 1.1),
    ],
)
def test_peaks_are_proven_or_nearly(family: str, count: int, gap: float) -> None:
    """Bounds are not far away, on graphs with many orders."""
    found = Chooser(ScheduleOptions()).order(make_problem(family, count, seed=0))
    assert found.cost.peak <= gap * found.lower
