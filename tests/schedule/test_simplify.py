"""Merging of nodes and dropping of constraints in C, against their definitions in Python."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings

from benchmarks.random_orders import FAMILIES, make_problem
from popc.schedule.flat import find_native, flattened, lists_of
from popc.schedule.problem import OrderingProblem
from popc.schedule.reach import reduce_by_definition, reduce_edges
from popc.schedule.simplify import merge_by_definition, merge_nodes
from tests.support.random_problems import problems

pytestmark = pytest.mark.skipif(find_native() is None, reason="the search in C has not been built")


def _agree(problem: OrderingProblem) -> None:
    """Compare both, also on what merging gives."""
    while True:
        reduced = reduce_edges(problem.topological(), problem.successors)
        assert reduced == reduce_by_definition(problem.topological(), problem.successors)
        whole = merge_nodes(problem, problem.successors)
        assert whole == merge_by_definition(problem, problem.successors)
        smaller = merge_nodes(problem, reduced)
        assert smaller == merge_by_definition(problem, reduced)
        if len(smaller) == len(problem):
            return
        problem = smaller


@settings(deadline=None, max_examples=100)
@given(problem=problems(12))
def test_the_same_nodes_are_merged(problem: OrderingProblem) -> None:
    _agree(problem)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_so_they_are_in_larger_graphs(family: str) -> None:
    _agree(make_problem(family, 150, seed=5))


def test_links_to_many_targets_are_looked_at_in_parts() -> None:
    """Of a graph in which each node waits for all of the last fifteen, a chain is left."""
    successors = [list(range(node + 1, min(node + 16, 1200))) for node in range(1200)]
    reduced = reduce_edges(range(1200), successors)
    assert reduced == [[node + 1] for node in range(1199)] + [[]]


def test_c_refuses_what_does_not_fit() -> None:
    native, problem = find_native(), make_problem("layered", 9, seed=1)
    assert native is not None
    starts, items = lists_of(problem.successors)
    order = array("q", problem.topological())
    for changed in (
        (starts[1:], items, order, starts[:], items[:]),
        (starts, items[1:], order, starts[:], items[:]),
        (starts, items, order[1:], starts[:], items[:]),
        (starts, items, array("q", [0] * 9), starts[:], items[:]),
        (starts, items, order, starts[1:], items[:]),
        (starts, items, order, starts[:], items[1:]),
    ):
        with pytest.raises(ValueError, match="do not fit together"):
            native.reduce_links(*changed)
    tables = flattened(problem, range(9))
    assert tables is not None
    beside = [starts, items, *lists_of(problem.makes), array("q", problem.weights)]
    for number in range(len(beside)):
        wrong = [*beside[:number], array("q", [7, 7]), *beside[number + 1 :]]
        with pytest.raises(ValueError, match="do not fit together"):
            native.merge_nodes(*tables, *wrong)
