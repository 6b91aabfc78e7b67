"""Random graphs of many shapes: no simple search finds an order with a lower peak."""

from __future__ import annotations

import pytest

from benchmarks.plain_shift import shift_plainly
from benchmarks.random_orders import FAMILIES, make_problem
from popc.options import ScheduleOptions, TieBreaker
from popc.schedule.algorithms import kahn_order
from popc.schedule.choice import Chooser
from popc.schedule.effort import Effort
from popc.schedule.flat import find_native
from popc.schedule.measures import measure
from popc.schedule.shift import ShiftLimits, shift_blocks, shift_by_definition
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


@pytest.mark.parametrize("window", [16, 1 << 40])
@pytest.mark.parametrize("family", ["layered", "scattered", "tree", "unrolled"])
def test_moves_are_the_same_where_turns_and_blocks_are_many(family: str, window: int) -> None:
    if find_native() is None:
        pytest.skip("the search in C has not been built")
    problem = make_problem(family, 150, seed=1)
    order = kahn_order(problem, TieBreaker.FIFO)
    effort, limits = Effort(100_000), ShiftLimits(keeps_peak=False, window=window)
    expected = shift_by_definition(problem, order, effort, limits)
    assert expected.moves > 0
    assert shift_blocks(problem, order, effort, limits) == expected
