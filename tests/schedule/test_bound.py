"""Bytes live in every order: the module in C beside its definition."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.random_orders import make_problem
from popc.schedule.bound import certain_by_definition, certain_bytes
from popc.schedule.flat import find_native, flattened, lists_of
from popc.schedule.problem import OrderingProblem
from tests.support.random_problems import problems


@settings(deadline=None, max_examples=50)
@given(problem=problems(12), count=st.integers(0, 20))
def test_what_is_certainly_live_is_the_same_in_c(problem: OrderingProblem, count: int) -> None:
    order, buffers = problem.topological(), list(range(len(problem.weights)))[:count]
    expected = certain_by_definition(problem, order, buffers)
    assert certain_bytes(problem, order, buffers).tolist() == expected.tolist()


def test_many_buffers_that_are_certainly_live_are_counted_in_parts() -> None:
    problem = make_problem("layered", 700, seed=1)
    order, buffers = problem.topological(), list(range(700))
    expected = certain_by_definition(problem, order, buffers)
    assert certain_bytes(problem, order, buffers).tolist() == expected.tolist()
    assert expected.max() > 0


def test_c_refuses_bounds_of_tables_that_do_not_fit() -> None:
    native = find_native()
    if native is None:
        pytest.skip("the search in C has not been built")
    problem = make_problem("layered", 9, seed=1)
    tables = flattened(problem, range(9))
    assert tables is not None
    numbers = array("q", range(9))
    beside = [*lists_of(problem.makes), array("q", problem.weights), numbers, numbers, array("q")]
    for number in range(len(beside)):
        wrong = [*beside[:number], array("q", [9] * 8), *beside[number + 1 :]]
        with pytest.raises(ValueError, match="do not fit together"):
            native.add_certain_bytes(*tables, *wrong, array("q", range(9)))
    with pytest.raises(ValueError, match="do not fit together"):
        native.add_certain_bytes(*tables, *beside, array("q"))
