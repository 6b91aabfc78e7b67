"""Bounds by cuts, against all sets of nodes that may have run, and C against its definition."""

from __future__ import annotations

from array import array
from itertools import combinations

import pytest
from hypothesis import given, settings

from benchmarks.random_orders import FAMILIES, make_problem
from popc.schedule.bound import bound_columns, bound_peak
from popc.schedule.flat import find_native, flattened
from popc.schedule.flow import bound_by_cuts, least_by_definition, least_bytes
from popc.schedule.problem import OrderingProblem
from tests.support.random_problems import lowest_peak, problems


def _live(problem: OrderingProblem, done: set[int]) -> int:
    """Bytes of buffers when these nodes have run."""
    there = {*problem.initial, *(b for node in done for b in problem.makes[node])}
    left = {b for node, read in enumerate(problem.reads) if node not in done for b in read}
    leaders = problem.freed_with
    return sum(problem.weights[b] for b in there if problem.stays[leaders[b]] or leaders[b] in left)


def _least(problem: OrderingProblem, node: int) -> int:
    """The fewest bytes live when ``node`` begins, by looking at every set."""
    others = [other for other in range(len(problem)) if other != node]
    found: list[int] = []
    for count in range(len(problem)):
        for chosen in combinations(others, count):
            done = set(chosen)
            waits = [
                later
                for each, after in enumerate(problem.successors)
                for later in after
                if each not in done
            ]
            if done.isdisjoint(waits) and waits.count(node) == 0:
                found.append(_live(problem, done))
    return min(found)


@settings(deadline=None, max_examples=60)
@given(problem=problems(6))
def test_no_set_that_may_have_run_leaves_less_live(problem: OrderingProblem) -> None:
    nodes = list(range(len(problem)))
    assert least_by_definition(problem, nodes) == [_least(problem, node) for node in nodes]


@settings(deadline=None, max_examples=200)
@given(problem=problems())
def test_no_order_has_a_lower_peak(problem: OrderingProblem) -> None:
    nodes = list(range(len(problem)))
    assert least_bytes(problem, nodes) == least_by_definition(problem, nodes)
    lowest = lowest_peak(problem)
    assert bound_by_cuts(problem, 1 << 60) <= lowest
    assert bound_peak(problem) <= lowest


@pytest.mark.parametrize("family", list(FAMILIES))
def test_cuts_of_larger_graphs_are_the_same_in_c(family: str) -> None:
    problem = make_problem(family, 120, seed=6)
    nodes = list(range(0, 120, 9))
    assert least_bytes(problem, nodes) == least_by_definition(problem, nodes)


@pytest.mark.parametrize("family", ["layered", "scattered"])
def test_what_stays_until_the_end_bounds_wide_graphs(family: str) -> None:
    """Results that nobody reads are most of what is live in the end, whatever the order."""
    problem = make_problem(family, 300, seed=1)
    staying = sum(w for w, stays in zip(problem.weights, problem.stays, strict=True) if stays)
    assert bound_peak(problem) >= staying


def test_no_cuts_are_looked_for_in_very_large_problems() -> None:
    assert bound_by_cuts(make_problem("chain", 11_000, seed=0), 1 << 60) > 0
    assert bound_by_cuts(make_problem("grid", 14_000, seed=0), 1 << 60) == 0


def test_c_refuses_cuts_of_what_does_not_fit() -> None:
    native = find_native()
    if native is None:
        pytest.skip("the search in C has not been built")
    problem = make_problem("layered", 9, seed=1)
    tables = flattened(problem, range(9))
    assert tables is not None
    columns = bound_columns(problem, ())
    for nodes, found in ((array("q", [9]), array("q", [0])), (array("q", [1]), array("q"))):
        with pytest.raises(ValueError, match="do not fit together"):
            native.find_least_bytes(*tables, *columns, nodes, found)
